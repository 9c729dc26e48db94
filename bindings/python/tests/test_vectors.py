"""What part of a vector is sent, and what happens to the rest."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from dphe import Aggregator, KeyGenerator, Task, User
from dphe.errors import InvalidValue, Refused, StorageError
from dphe.paillier import DecryptionKey
from dphe.vectors import Chooser, LargestBlocks, LargestValues, Rotating, chooser


def test_the_largest_are_sent_and_ties_go_to_the_first() -> None:
    values = np.array([1.0, -3.0, 0.0, 3.0, 2.0, -3.0])
    assert LargestValues(2).take(1, values).indices.tolist() == [1, 3]
    assert LargestValues(99).take(1, values).indices.tolist() == [0, 1, 3, 4, 5]
    assert LargestBlocks(4, 1).take(1, values).indices.tolist() == [0, 1, 2, 3]
    # the last block is shorter
    assert LargestBlocks(4, 2).take(1, values).indices.tolist() == [0, 1, 2, 3, 4, 5]
    assert LargestBlocks(2, 2).take(1, values).values.tolist() == [1.0, -3.0, 2.0, -3.0]
    assert len(LargestBlocks(2, 2).take(1, np.zeros(6))) == 0
    assert len(LargestValues(2).take(1, np.zeros(0))) == 0


def test_what_is_left_out_is_sent_later(tmp_path: Path) -> None:
    one = LargestValues(1, feedback=0.5)
    assert one.take(1, [1.0, 3.0, -2.0]).to_array().tolist() == [0.0, 3.0, 0.0]
    one.settle(1, included=True)
    assert one.residual is not None
    assert one.residual.tolist() == [0.5, 0.0, -1.0]
    # an update that is not in the sum leaves the residual as it was
    assert one.take(2, [0.0, 0.0, 0.0]).to_array().tolist() == [0.0, 0.0, -1.0]
    one.settle(2, included=False)
    assert one.residual.tolist() == [0.5, 0.0, -1.0]
    # taken twice in a round: the later part counts
    one.take(3, [9.0, 0.0, 0.0])
    assert one.take(3, [0.0, 8.0, 0.0]).to_array().tolist() == [0.0, 8.0, 0.0]
    one.settle(3, included=True)
    assert one.residual.tolist() == [0.25, 0.0, -0.5]
    one.save(tmp_path / "residual")
    assert (tmp_path / "residual").stat().st_mode & 0o777 == 0o600
    restored = LargestValues(1, feedback=0.5)
    restored.load(tmp_path / "residual")
    assert restored.take(4, [0.0] * 3).to_array().tolist() == [0.0, 0.0, -0.5]
    one.reset()
    assert one.residual is None
    one.save(tmp_path / "empty")
    restored.load(tmp_path / "empty")
    assert restored.residual is None


def test_rotation_sends_every_value_of_a_constant_difference() -> None:
    task = Task(100, users=3, share=0.25, block=3, key_bits=2048)
    rotating = chooser("rotate", task, feedback=1.0)
    sent = np.zeros(100)
    # four passes: what was not sent has been collected
    for round in range(1, 21):
        part = rotating.take(round, np.ones(100))
        support = task.support(round)
        assert support is not None
        assert part.indices.tolist() == support.tolist()
        sent += part.to_array()
        rotating.settle(round, included=True)
    assert rotating.residual is not None
    assert np.array_equal(sent + rotating.residual, np.full(100, 20.0))
    assert sent.min() >= 12


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rotate", {"share": 0.2}),
        ("d-topk", {"profile": "sparse", "capacity": 6}),
        ("d-block", {"profile": "sparse", "capacity": 3, "block": 4}),
        ("d-topk", {}),
    ],
)
def test_averages_of_parts_reach_the_average_of_wholes(
    secret: DecryptionKey, name: Any, options: dict[str, Any]
) -> None:
    """Gradient descent towards users' points, of which each round carries a part, ends at their mean."""
    task = Task(40, users=3, key_bits=2048, clip=4.0, scale_bits=20, **options)
    generator = KeyGenerator(task, secret)
    users = [User(generator.enroll(number)) for number in (1, 2, 3)]
    choosers = [chooser(name, task, feedback=0.9) for _ in users]
    aggregator = Aggregator(generator.aggregator_kit())
    points = np.random.default_rng(2).uniform(-1, 1, (3, 40))
    model = np.zeros(40)
    for round in range(1, 61):
        collecting = aggregator.begin(round)
        for user, one, point in zip(users, choosers, points, strict=True):
            collecting.accept(user.seal(round, one.take(round, 0.1 * (point - model))))
        published = collecting.publish(generator.open(collecting.finish()))
        for user, one in zip(users, choosers, strict=True):
            total = user.check(published)
            one.settle(round, included=user.number in total.users)
        model += total.mean()
    assert np.abs(model - points.mean(axis=0)).max() < 0.25
    assert np.abs(model - points.mean(axis=0)).mean() < 0.5 * np.abs(points.mean(axis=0)).mean()


def test_wrong_differences_and_settings_are_refused(tmp_path: Path) -> None:
    task = Task(6, users=3, share=0.5, key_bits=2048)
    private = Task(6, users=3, profile="sparse", block=2, capacity=1, key_bits=2048)
    one = LargestValues(2)
    one.take(1, np.ones(4))
    one.settle(1, included=True)
    refused: list[Callable[[], object]] = [
        lambda: one.take(2, np.ones(5)),
        lambda: one.take(2, np.ones((2, 2))),
        lambda: one.take(2, cast(Any, [[1.0], [1.0, 2.0]])),
        lambda: one.take(2, [1.0, float("nan"), 0.0, 0.0]),
        lambda: one.take(2, [1.0, float("inf"), 0.0, 0.0]),
        lambda: one.take(0, np.ones(4)),
        lambda: Rotating(task).take(1, np.ones(7)),
        lambda: Rotating(private),
        lambda: LargestValues(0),
        lambda: LargestBlocks(0, 1),
        lambda: LargestBlocks(1, 0),
        lambda: LargestValues(1, feedback=1.5),
        lambda: LargestValues(1, feedback=-0.1),
        lambda: LargestValues(1, feedback=float("nan")),
        lambda: chooser("d-topk", task),
        lambda: chooser("d-block", task),
        lambda: chooser("d-topk", private),
        lambda: chooser("w-l1", task),  # type: ignore[arg-type]
    ]
    for call in refused:
        with pytest.raises(InvalidValue):
            call()
    for wrong in (["a"], np.array([True]), None, np.array([1j])):
        with pytest.raises(TypeError):
            one.take(2, wrong)  # type: ignore[arg-type]
    wrong_types: list[Callable[[], object]] = [
        lambda: LargestValues(cast(int, 1.5)),
        lambda: LargestValues(1, feedback=cast(float, "all")),
        lambda: Rotating(cast(Task, "task")),
        lambda: chooser("rotate", cast(Task, 6)),
    ]
    for wrong_type in wrong_types:
        with pytest.raises(TypeError):
            wrong_type()
    with pytest.raises(Refused):
        one.settle(5, included=True)
    one.settle(5, included=False)
    attempts: list[Callable[[Any], object]] = [pickle.dumps, copy.copy, copy.deepcopy]
    for attempt in attempts:
        with pytest.raises(TypeError):
            attempt(one)
    assert repr(one) == "LargestValues(feedback=0.9)"
    one.save(tmp_path / "residual")
    for call in (
        lambda: one.save(tmp_path / "residual"),
        lambda: one.load(tmp_path / "none"),
        lambda: one.save(tmp_path / "none" / "none"),
    ):
        with pytest.raises(StorageError):
            call()
    for wrong_file in (np.ones(3, np.float32), np.ones((2, 2)), np.array([np.nan])):
        np.save(tmp_path / "wrong.npy", wrong_file)
        with pytest.raises(InvalidValue):
            one.load(tmp_path / "wrong.npy")
    with open(tmp_path / "zip", "wb") as file:
        np.savez(file, residual=np.ones(3))
    with pytest.raises(StorageError):
        one.load(tmp_path / "zip")
    assert isinstance(one, Chooser)
