"""Secure sums over bytes: equal to Rust's, for arrays of all kinds, and inputs that are refused."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import dphe
import numpy as np
import pytest
from dphe import (
    Aggregator,
    AggregatorKit,
    Collecting,
    KeyGenerator,
    Layout,
    SparseVector,
    Sum,
    Task,
    User,
    UserKit,
)
from dphe.errors import DpheError, InvalidValue, KeyMismatch, Refused, RoundFailed, TooFewUsers
from dphe.paillier import DecryptionKey

ROUNDS: dict[str, Any] = json.loads((Path(__file__).parent / "rounds.json").read_text())


def make_task(vector: int | Layout = 40, **options: Any) -> Task:
    return Task(vector, **{"users": 5, "key_bits": 2048, **options})


class Parties:
    """All parties of a task."""

    def __init__(self, task: Task, secret: DecryptionKey, users: int = 3) -> None:
        self.task = task
        self.generator = KeyGenerator(task, secret)
        kits = [self.generator.enroll(number) for number in range(1, users + 1)]
        self.users = [User(kit) for kit in kits]
        self.aggregator = Aggregator(self.generator.aggregator_kit())

    def finish(self, round: int, sealed: list[bytes]) -> tuple[Collecting, bytes]:
        collecting = self.aggregator.begin(round)
        for update in sealed:
            collecting.accept(update)
        return collecting, collecting.finish()

    def sum(self, round: int, vectors: list[Any], dense: list[Any] | None = None) -> Sum:
        """Run a round, and return the sum that every user checked."""
        extra = dense or [()] * len(vectors)
        sealed = [
            user.seal(round, vector, dense=values)
            for user, vector, values in zip(self.users, vectors, extra, strict=True)
        ]
        collecting, total = self.finish(round, sealed)
        published = collecting.publish(self.generator.open(total))
        checked = [user.check(published) for user in self.users]
        assert all(np.array_equal(one.weights, checked[0].weights) for one in checked)
        return checked[0]


@pytest.fixture(scope="session")
def parties(secret: DecryptionKey) -> Callable[..., Parties]:
    def make(vector: int | Layout = 40, users: int = 3, **options: Any) -> Parties:
        return Parties(make_task(vector, **options), secret, users)

    return make


@pytest.mark.parametrize("profile", ["full", "sparse"])
def test_a_round_over_bytes_is_that_of_rust(profile: str) -> None:
    example = ROUNDS[profile]
    read = bytes.fromhex
    factors = b"dphe-unprotected-secret-key\n\x01\x01" + read(ROUNDS["p"] + ROUNDS["q"])
    secret = DecryptionKey.from_unprotected_bytes(factors)
    task = Task.from_bytes(read(example["task"]))
    assert task.to_bytes() == read(example["task"])
    generator = KeyGenerator.from_unprotected_bytes(read(example["seeds"]), secret)
    assert generator.to_unprotected_bytes() == read(example["seeds"])
    assert (generator.task, generator.users, generator.next_round) == (task, (1, 2, 3), 1)
    kits = [UserKit.from_unprotected_bytes(read(kit)) for kit in example["kits"]]
    assert [kit.to_unprotected_bytes().hex() for kit in kits] == example["kits"]
    users = [User(kit) for kit in kits]
    aggregator = Aggregator(AggregatorKit.from_unprotected_bytes(read(example["aggregator_kit"])))

    # what Rust sealed: every later byte is determined
    collecting = aggregator.begin(1)
    for number, update in enumerate(example["updates"], 1):
        assert len(update) // 2 == task.cost().bytes
        assert collecting.accept(read(update)) == number
    sealed_sum = collecting.finish()
    assert sealed_sum.hex() == example["sealed_sum"]
    opened = generator.open(sealed_sum)
    if profile == "sparse":
        assert opened.hex() == example["opened_sum"]
    published = collecting.publish(opened)
    assert published.hex() == example["published_sum"]
    total = users[0].check(published)
    assert total.integers.tolist() == example["integers"]
    assert np.rint(total.dense * 2**task.scale_bits).tolist() == example["dense_integers"]

    # what Python seals: noise and masks differ, and the published sum does not
    generator = KeyGenerator.from_unprotected_bytes(read(example["seeds"]), secret)
    kit = AggregatorKit.from_unprotected_bytes(read(example["aggregator_kit"]))
    collecting = Aggregator(kit).begin(1)
    for user, vector, dense in zip(users[1:], example["vectors"][1:], example["dense"][1:], strict=True):
        sealed = user.seal(1, vector, dense=dense)
        assert len(sealed) == task.cost().bytes
        collecting.accept(sealed)
    again = User(kits[0])
    collecting.accept(again.seal(1, example["vectors"][0], dense=example["dense"][0]))
    assert collecting.publish(generator.open(collecting.finish())).hex() == example["published_sum"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"share": 0.3, "block": 4},
        {"dense": 3, "bound": False},
        {"profile": "sparse", "capacity": 40, "dense": 2},
        {"profile": "sparse", "block": 5, "shards": 2, "share": 0.5, "bound": False},
    ],
)
def test_sums_of_arrays_are_exact(parties: Callable[..., Parties], options: dict[str, Any]) -> None:
    all_parties = parties(40, users=4, **options)
    task = all_parties.task
    generator = np.random.default_rng(3)
    for round in (1, 2, 5):
        vectors = np.rint(generator.uniform(-1, 1, (4, 40)) * 2**15) / 2**16
        support = task.support(round)
        if support is not None:
            outside = np.setdiff1d(np.arange(40), support)
            vectors[:, outside] = 0
        dense = generator.integers(-9, 9, (4, task.dense)) / 16
        total = all_parties.sum(round, list(vectors), list(dense))
        assert np.array_equal(total.weights, vectors.sum(axis=0))
        assert np.array_equal(total.dense, dense.sum(axis=0))
        assert np.array_equal(total.mean(), vectors.sum(axis=0) / 4)
        expected = vectors.sum(axis=0) if support is None else vectors.sum(axis=0)[support]
        assert np.array_equal(total.integers, expected * 2**16)
        assert (total.round, total.users) == (round, (1, 2, 3, 4))
        assert all_parties.generator.next_round == round + 1


def test_arrays_of_all_kinds_are_sealed(parties: Callable[..., Parties]) -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    base = np.arange(-20, 20) / 64
    square = np.zeros((40, 40))
    square[:, 3] = base
    frozen = base.copy()
    frozen.setflags(write=False)
    indices = np.flatnonzero(base)
    sparse = SparseVector(40, indices[::-1].copy(), base[indices][::-1])
    unaligned = np.frombuffer(b"?" + base.tobytes(), np.uint8)[1:].view(np.float64)
    kinds = [
        unaligned,
        frozen,
        square[:, 3],
        base[::-1].copy()[::-1],
        base.astype(np.float32),
        base.astype(np.float16),
        base.astype(">f8"),
        base.tolist(),
        sparse,
        scipy_sparse.csr_array(base.reshape(1, 40)),
        scipy_sparse.csc_matrix(base.reshape(40, 1)),
        scipy_sparse.coo_array((np.r_[base / 2, base / 2], (np.r_[:40, :40],)), shape=(40,)),
    ]
    for profile in ("full", "sparse"):
        all_parties = parties(40, users=3, profile=profile, capacity=40)
        for start in range(0, len(kinds), 3):
            total = all_parties.sum(1 + start // 3, kinds[start : start + 3])
            assert np.array_equal(total.weights, 3 * base), (profile, start)
    integers = parties(40, clip=32.0)
    assert np.array_equal(integers.sum(1, [np.arange(-20, 20)] * 3).weights, 3.0 * np.arange(-20, 20))


class Torchlike:
    """Behaves like a torch tensor that requires gradients."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def detach(self) -> Torchlike:
        return self

    def cpu(self) -> Torchlike:
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return self.array


def test_named_tensors_come_back_as_named_tensors(parties: Callable[..., Parties]) -> None:
    shapes = {"conv.weight": (2, 3, 2), "conv.bias": (2,), "scalar": ()}
    generator = np.random.default_rng(1)

    def tensors() -> dict[str, Any]:
        made: dict[str, Any] = {
            name: np.rint(generator.uniform(-1, 1, shape) * 64).astype(np.float32) / 128
            for name, shape in shapes.items()
        }
        made["conv.bias"] = Torchlike(made["conv.bias"] * 256)
        return {**made, "steps": np.array(5)}

    users = [tensors() for _ in range(3)]
    layout = Layout.of(users[0], scales={"conv.bias": 256.0})
    assert (layout.size, layout.skipped) == (15, ("steps",))
    all_parties = parties(layout)
    total = all_parties.sum(1, users)
    mean = total.tensors()
    assert list(mean) == ["conv.bias", "conv.weight", "scalar"]
    for name, array in mean.items():
        expected = sum(np.asarray(user[name]).astype(np.float64) for user in users) / 3
        assert array.shape == shapes[name]
        assert array.dtype == np.float32
        assert np.allclose(array, expected, atol=1e-6), name
    named: list[tuple[dict[str, Any], str]] = [
        ({**users[0], "scalar": np.float32(np.nan)}, "array 'scalar': value 0 is not a finite"),
        ({**users[0], "scalar": np.float32(1.5)}, "array 'scalar' has a value outside"),
        ({**users[0], "conv.weight": np.zeros((3, 2, 2))}, "has shape"),
        ({**users[0], "more": np.zeros(2)}, "'more' is not part"),
        ({"scalar": users[0]["scalar"]}, "'conv.bias' is missing"),
    ]
    user = all_parties.users[0]
    for wrong, message in named:
        with pytest.raises(InvalidValue, match=message):
            user.seal(2, wrong)
    with pytest.raises(TypeError, match="has dtype"):
        user.seal(2, {**users[0], "scalar": np.array(1)})
    with pytest.raises(TypeError, match="no layout"):
        parties(15).users[0].seal(1, users[0])
    with pytest.raises(TypeError, match="no layout"):
        parties(40).sum(1, [np.zeros(40)] * 3).tensors()
    # the layout travels beside the kit
    kit = UserKit.from_unprotected_bytes(user.kit().to_unprotected_bytes(), layout)
    assert kit.task == all_parties.task
    with pytest.raises(InvalidValue, match="the layout has 1 values"):
        UserKit.from_unprotected_bytes(user.kit().to_unprotected_bytes(), Layout.of({"a": np.zeros(1)}))


def test_layouts_do_not_depend_on_the_order_of_names() -> None:
    one = Layout.of({"w": np.ones(2), "b": np.zeros(1), "n": np.arange(2), "m": np.arange(2)})
    two = Layout.of({"m": np.arange(2), "n": np.arange(2), "b": np.zeros(1), "w": np.ones(2)})
    assert one == two
    assert one.digest == two.digest
    assert (one.names, one.skipped) == (("b", "w"), ("m", "n"))
    tensors = {"w": np.array([1.0, 2.0]), "b": np.array([3.0])}
    assert np.array_equal(one.flatten(tensors), two.flatten(tensors))
    # bytes in another order are read as the same layout
    fields = json.loads(one.to_bytes())
    fields["arrays"].reverse()
    assert Layout.from_bytes(json.dumps(fields).encode()) == one


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("scale", [3e-8, 1e-8, 0.1, 3.0])
def test_scales_divide_in_full_precision(dtype: Any, scale: float) -> None:
    array = np.array([3e-6, -0.5, 1.0, 0.0]).astype(dtype)
    vector = Layout.of({"a": array}, scales={"a": scale}).flatten({"a": array})
    assert vector.tolist() == (array.astype(np.float64) / scale).tolist()


def test_values_that_overflow_in_a_layout_are_refused() -> None:
    layout = Layout.of({"a": np.zeros(2, np.float32)})
    with pytest.raises(InvalidValue, match="array 'a': value 1 divided by its scale is too large"):
        layout.flatten({"a": np.array([1.0, 1e300])})
    tiny = Layout.of({"a": np.zeros(1)}, scales={"a": 1e-300})
    with pytest.raises(InvalidValue, match="too large"):
        tiny.flatten({"a": np.array([1e300])})


def test_layouts_are_read_back_and_wrong_ones_are_refused() -> None:
    tensors = {"a": np.zeros((2, 2), np.float16), "b": np.zeros(3), "n": np.arange(3), "c": np.zeros(0)}
    layout = Layout.of(tensors, scales={"b": 0.5}, skip=["a"])
    assert (layout.names, layout.skipped, layout.size) == (("b", "c"), ("a", "n"), 3)
    assert Layout.from_bytes(layout.to_bytes()) == layout
    assert pickle.loads(pickle.dumps(layout)).digest == layout.digest
    assert layout.digest != Layout.of(tensors, skip=["a"]).digest
    vector = layout.flatten({"b": np.array([1.0, -2.0, 3.0]), "c": np.zeros(0)})
    assert vector.tolist() == [2.0, -4.0, 6.0]
    assert layout.unflatten(vector)["b"].tolist() == [1.0, -2.0, 3.0]
    assert Layout.of({"x": np.zeros(2), "y": np.zeros(3)}).where(2) == "y"
    refused: list[Callable[[], object]] = [
        lambda: Layout.of({}),
        lambda: Layout.of({"n": np.arange(3)}),
        lambda: Layout.of(tensors, scales={"b": 0.0}),
        lambda: Layout.of(tensors, scales={"b": float("inf")}),
        lambda: Layout.of(tensors, scales={"n": 2.0}),
        lambda: Layout.of(tensors, scales={"z": 2.0}),
        lambda: Layout.of(tensors, skip=["z"]),
        lambda: layout.unflatten(np.zeros(4)),
        lambda: layout.unflatten(np.zeros((1, 3))),
        lambda: layout.where(3),
        lambda: Layout.from_bytes(b"{}"),
        lambda: Layout.from_bytes(b'{"version":1,"arrays":[["a",[-1],"float32",1.0]],"skipped":[]}'),
        lambda: Layout.from_bytes(b'{"version":1,"arrays":[["a",[1],"object",1.0]],"skipped":[]}'),
        lambda: Layout.from_bytes(
            b'{"version":1,"arrays":[["a",[1],"float32",1.0],["a",[1],"float32",1.0]],"skipped":[]}'
        ),
        lambda: Layout.from_bytes(layout.to_bytes()[:-1]),
        lambda: Layout.from_bytes(b"\xff"),
    ]
    for call in refused:
        with pytest.raises(InvalidValue):
            call()
    for wrong in ({1: np.zeros(2)}, {"a": np.array(["x"])}, {"a": np.array([1j])}, {"a": object()}):
        with pytest.raises(TypeError):
            Layout.of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "vector",
    [
        np.array([True] * 40),
        np.array([1j] * 40),
        np.array(["1"] * 40),
        np.array([object()] * 40),
        np.array([None] * 40),
        np.ma.masked_array(np.zeros(40), np.zeros(40, bool)),
        np.zeros(40, np.longdouble),
        np.zeros(40, "datetime64[D]"),
        "vector",
        None,
    ],
)
def test_other_dtypes_are_refused(parties: Callable[..., Parties], vector: Any) -> None:
    user = parties().users[0]
    with pytest.raises(TypeError):
        user.seal(1, vector)
    assert user.next_round == 1


def test_values_and_shapes_that_do_not_fit_are_refused(parties: Callable[..., Parties]) -> None:
    def with_value(index: int, value: float) -> np.ndarray[Any, Any]:
        vector = np.zeros(40)
        vector[index] = value
        return vector

    full, sparse = parties(dense=1), parties(profile="sparse", capacity=2, dense=1)
    for number, all_parties in enumerate((full, sparse)):
        user = all_parties.users[0]
        wrong: list[tuple[Any, Any, str]] = [
            (with_value(7, np.nan), [0], "value"),
            (with_value(7, np.inf), [0], "value"),
            (with_value(7, -1.25), [0], "value"),
            (np.zeros(40), [np.nan], "value"),
            (np.zeros(40), [1.5], "value"),
            (np.zeros(39), [0], "dimension"),
            (np.zeros((1, 40)), [0], "dimension"),
            (np.zeros((8, 5)), [0], "dimension"),
            (np.zeros(0), [0], "dimension"),
            (0.5, [0], "dimension"),
            (np.zeros(40), [], "dimension"),
            (np.zeros(40), 0.5, "dimension"),
            (np.zeros(40), [0, 0], "dimension"),
            (SparseVector(41, [0], [0.5]), [0], "dimension"),
            (SparseVector(40, [0], [np.nan]), [0], "value"),
        ]
        for vector, dense, code in wrong:
            with pytest.raises(InvalidValue) as caught:
                user.seal(1, vector, dense=dense)
            assert caught.value.code == code, (number, vector, dense)
        # nothing was sealed, so the round can still be sealed
        assert user.next_round == 1
        user.seal(1, with_value(7, 1.0), dense=[-1.0])
    with pytest.raises(InvalidValue, match="value 7"):
        full.users[1].seal(1, with_value(7, np.nan), dense=[0])
    with pytest.raises(InvalidValue) as caught:
        sparse.users[1].seal(1, np.full(40, 0.1), dense=[0])
    assert caught.value.code == "capacity"
    rotating = parties(share=0.5)
    support = rotating.task.support(1)
    assert support is not None
    outside = int(np.setdiff1d(np.arange(40), support)[0])
    for value in (0.5, np.nan):
        for vector in (with_value(outside, value), SparseVector(40, [outside], [0.5])):
            with pytest.raises(InvalidValue, match=f"{outside} is not in the public support") as caught:
                rotating.users[0].seal(1, vector)
            assert caught.value.code == "support"
    entries: list[tuple[Any, Any]] = [
        ([0, 0], [1, 2]),
        ([-1], [1]),
        ([40], [1]),
        ([0, 1], [1]),
        ([[0]], [[1]]),
    ]
    for indices, values in entries:
        with pytest.raises(InvalidValue):
            SparseVector(40, indices, values)
    for indices in ([0.5], ["0"], [True]):
        with pytest.raises(TypeError):
            SparseVector(40, indices, [1.0])


def test_values_outside_the_range_are_cut_if_the_task_says_so(parties: Callable[..., Parties]) -> None:
    all_parties = parties(4, on_clip="clip", clip=0.5)
    total = all_parties.sum(1, [[0.75, -9, 0.25, 0.5]] * 3)
    most = 0.5 - 2**-16
    assert total.weights.tolist() == [3 * most, -3 * most, 0.75, 3 * most]
    assert [user.clipped for user in all_parties.users] == [2, 2, 2]
    with pytest.raises(InvalidValue, match="not a finite"):
        all_parties.users[0].seal(2, [np.nan, 0, 0, 0])


@pytest.mark.parametrize(
    "options",
    [
        {"users": 2},
        {"users": 1 << 17},
        {"share": 0.0},
        {"share": 1.5},
        {"share": -0.5},
        {"share": float("nan")},
        {"share": 0.5, "capacity": 3},
        {"capacity": 0},
        {"capacity": 41},
        {"block": 0},
        {"block": 41},
        {"shards": 2},
        {"clip": 0.3},
        {"clip": 0.0},
        {"clip": -1.0},
        {"clip": float("nan")},
        {"clip": float("inf")},
        {"clip": 2.0**90},
        {"scale_bits": 49},
        {"scale_bits": -1},
        {"key_bits": 1024},
        {"key_bits": 0},
        {"noise": "textbook"},
        {"noise": "loud"},
        {"noise": None},
        {"profile": "paper"},
        {"profile": "none"},
        {"on_clip": "wrap"},
        {"min_users": 2},
        {"min_users": 6},
        {"dense": -1},
        {"dense": 1 << 25},
        {"id": b"short"},
    ],
)
def test_tasks_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        make_task(**options)


def test_tasks_of_wrong_types_are_refused() -> None:
    for options in (
        {"users": 3.0},
        {"users": True},
        {"clip": "1"},
        {"share": "all"},
        {"id": 7},
        {"dense": None},
        {"bound": None},
    ):
        with pytest.raises(TypeError):
            make_task(**options)
    for vector in (1.5, "40", None, np.zeros(3)):
        with pytest.raises(TypeError):
            make_task(vector)  # type: ignore[arg-type]
    for length in (0, -1, 1 << 31):
        with pytest.raises(InvalidValue):
            make_task(length)


def test_tasks_are_public_values() -> None:
    task = make_task(10**6, dense=2, clip=4.0, id=bytes(range(16)))
    assert Task.from_bytes(task.to_bytes()) == task
    assert pickle.loads(pickle.dumps(task)) == task
    assert copy.deepcopy(task) == task
    assert len({task, Task.from_bytes(task.to_bytes())}) == 1
    assert task != make_task(10**6, dense=2, clip=4.0)
    fields = (task.dimension, task.dense, task.clip, task.on_clip, task.profile, task.key_bits, task.bound)
    assert fields == (10**6, 2, 4.0, "error", "full", 2048, True)
    assert (task.block, task.positions, task.capacity, task.shards) == (16, 62500, 62500, 1)
    assert (task.scale_bits, task.min_users, task.max_users, task.noise) == (16, 3, 5, "secure")
    assert task.id == bytes(range(16)).hex()
    for length in (0, 15, 16, 50, len(task.to_bytes()) - 1):
        with pytest.raises(DpheError):
            Task.from_bytes(task.to_bytes()[:length])
    for wrong in (b"\0" * len(task.to_bytes()), task.to_bytes() + b"\0"):
        with pytest.raises(DpheError):
            Task.from_bytes(wrong)


def test_a_round_is_sealed_once_and_in_order(parties: Callable[..., Parties]) -> None:
    all_parties = parties(profile="sparse", capacity=4)
    user = all_parties.users[0]
    user.seal(2, np.zeros(40))
    for round in (1, 2):
        with pytest.raises(Refused) as caught:
            user.seal(round, np.zeros(40))
        assert caught.value.code == "conflict"
    user.seal(3, np.zeros(40))
    user.close(7)
    assert user.next_round == 8
    with pytest.raises(Refused):
        user.seal(7, np.zeros(40))
    for round in (0, -1, 1 << 64):
        with pytest.raises(InvalidValue):
            user.seal(round, np.zeros(40))
    for wrong in (1.0, "1", True, None):
        with pytest.raises(TypeError):
            user.seal(wrong, np.zeros(40))  # type: ignore[arg-type]


def test_sums_of_too_few_or_wrong_users_are_refused(parties: Callable[..., Parties]) -> None:
    all_parties, strangers = parties(), parties()
    sealed = [user.seal(1, np.zeros(40)) for user in all_parties.users]
    collecting = all_parties.aggregator.begin(1)
    collecting.accept(sealed[0])
    with pytest.raises(TooFewUsers) as caught:
        collecting.finish()
    assert caught.value.code == "set_small"
    with pytest.raises(Refused) as conflict:
        collecting.accept(sealed[0])
    assert conflict.value.code == "conflict"
    with pytest.raises(InvalidValue) as task:
        collecting.accept(strangers.users[0].seal(1, np.zeros(40)))
    assert task.value.code == "task"
    with pytest.raises(InvalidValue) as future:
        collecting.accept(all_parties.users[0].seal(2, np.zeros(40)))
    assert future.value.code == "future"
    # refused updates have changed nothing
    assert collecting.users == (1,)
    collecting.accept(sealed[1])
    collecting.accept(sealed[2])
    total = collecting.finish()
    with pytest.raises(InvalidValue, match="frozen"):
        collecting.accept(sealed[0])
    assert collecting.finish() == total
    with pytest.raises(InvalidValue) as other:
        strangers.generator.open(total)
    assert other.value.code == "task"
    opened = all_parties.generator.open(total)
    assert all_parties.generator.open(total) == opened
    with pytest.raises(InvalidValue):
        collecting.publish(total)
    published = collecting.publish(opened)
    assert collecting.publish(opened) == published
    with pytest.raises(Refused) as stale:
        all_parties.aggregator.begin(1)
    assert stale.value.code == "stale"
    with pytest.raises(InvalidValue) as not_mine:
        strangers.users[0].check(published)
    assert not_mine.value.code == "task"
    assert collecting.decode(published).weights.tolist() == [0.0] * 40
    all_parties.users[0].check(published)
    with pytest.raises(InvalidValue) as forgotten:
        all_parties.users[0].check(published)
    assert forgotten.value.code == "stale"


def test_a_sum_that_lists_other_users_is_noticed(parties: Callable[..., Parties]) -> None:
    def forge(all_parties: Parties) -> tuple[Collecting, bytes]:
        sealed = [user.seal(1, np.full(40, 0.25)) for user in all_parties.users]
        collecting, total = all_parties.finish(1, sealed)
        # the aggregator lists user 5 instead of user 4
        at = 65 + 4 + 3 * 20
        assert total[at : at + 4] == (4).to_bytes(4, "big")
        return collecting, total[:at] + (5).to_bytes(4, "big") + total[at + 4 :]

    for profile in ("full", "sparse"):
        all_parties = parties(users=4, profile=profile, capacity=40)
        all_parties.generator.enroll(5)
        collecting, total = forge(all_parties)
        if profile == "sparse":
            with pytest.raises(RoundFailed):
                all_parties.generator.open(total)
            continue
        opened = all_parties.generator.open(total)
        with pytest.raises(Refused) as caught:
            collecting.publish(opened)
        assert caught.value.code == "conflict"
    # a published sum that was changed fails the check
    all_parties = parties()
    collecting, total = all_parties.finish(1, [user.seal(1, np.zeros(40)) for user in all_parties.users])
    published = bytearray(collecting.publish(all_parties.generator.open(total)))
    published[-1] ^= 1
    with pytest.raises(RoundFailed) as check:
        all_parties.users[0].check(bytes(published))
    assert check.value.code == "check"


_ROUND = slice(57, 65)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bound": False},
        {"profile": "sparse", "capacity": 40},
        {"profile": "sparse", "capacity": 40, "bound": False},
    ],
)
def test_a_published_sum_of_another_round_is_refused(
    parties: Callable[..., Parties], options: dict[str, Any]
) -> None:
    all_parties = parties(**options)
    masked = options == {}
    user = all_parties.users[0]
    for round in (1, 2):
        sealed = [each.seal(round, np.full(40, 0.25)) for each in all_parties.users]
        collecting, total = all_parties.finish(round, sealed)
        published = collecting.publish(all_parties.generator.open(total))
        assert int.from_bytes(published[_ROUND], "big") == round
        for other in (round + 2, 200_000, 1 << 20, 1 << 62, (1 << 63) - 1, (1 << 64) - 1):
            forged = published[:57] + other.to_bytes(8, "big") + published[65:]
            # a masked sum fails the check, and all others name a round that has not started
            with pytest.raises(RoundFailed if masked and other <= 1 << 20 else InvalidValue):
                user.check(forged)
            assert user.next_round == round + 1
        assert user.check(published).round == round
        # an old sum is not accepted again
        with pytest.raises(InvalidValue) as stale:
            user.check(published)
        assert stale.value.code == "stale"
    # the next round, in which this user did not take part, is accepted
    collecting, total = all_parties.finish(
        3, [each.seal(3, np.full(40, 0.25)) for each in parties_of(all_parties)]
    )
    assert user.check(collecting.publish(all_parties.generator.open(total))).round == 3
    assert user.next_round == 4


def parties_of(all_parties: Parties) -> list[User]:
    """Return users with the numbers and seeds of these, of which the first is another object."""
    return [User(all_parties.generator.enroll(1)), *all_parties.users[1:]]


@pytest.mark.timeout(60)
def test_rounds_that_are_too_far_ahead_cannot_be_ended(parties: Callable[..., Parties]) -> None:
    all_parties = parties(profile="sparse", capacity=4)
    user, aggregator = all_parties.users[0], all_parties.aggregator
    for party in (user, aggregator):
        for round in (1 << 21, 1 << 62, (1 << 63) - 1):
            with pytest.raises(InvalidValue) as caught:
                party.close(round)
            assert caught.value.code == "future"
    assert user.next_round == 1
    aggregator.begin(1).accept(user.seal(1, np.zeros(40)))


def test_rounds_that_cannot_be_opened_are_not_sealed(parties: Callable[..., Parties]) -> None:
    for options in ({}, {"bound": False}, {"profile": "sparse", "capacity": 4, "bound": False}):
        user = parties(**options).users[0]
        with pytest.raises(InvalidValue) as caught:
            user.seal(1_700_000_000, np.zeros(40))
        assert caught.value.code == "future"
        assert user.next_round == 1
        user.seal(1, np.zeros(40))


def test_the_check_covers_how_many_users_there_are_but_not_which(parties: Callable[..., Parties]) -> None:
    all_parties = parties(users=4)
    sealed = [user.seal(1, np.full(40, 0.25)) for user in all_parties.users[:3]]
    collecting, total = all_parties.finish(1, sealed)
    published = collecting.publish(all_parties.generator.open(total))
    users = slice(65, 65 + 4 + 3 * 4)
    assert published[users] == b"".join(number.to_bytes(4, "big") for number in (3, 1, 2, 3))
    more = b"".join(number.to_bytes(4, "big") for number in (4, 1, 2, 3, 4))
    with pytest.raises(RoundFailed):
        all_parties.users[0].check(published[:65] + more + published[users.stop :])
    # the names are what the aggregator says, as the documentation says
    other = b"".join(number.to_bytes(4, "big") for number in (3, 1, 2, 4))
    checked = all_parties.users[0].check(published[:65] + other + published[users.stop :])
    assert (checked.users, checked.weights[0]) == ((1, 2, 4), 0.75)


@pytest.mark.parametrize("profile", ["full", "sparse"])
def test_a_sum_is_bound_to_the_context_of_its_updates(parties: Callable[..., Parties], profile: str) -> None:
    mine, other = bytes(range(32)), bytes(32)
    vector = np.full(40, 0.25)

    def collect(contexts: list[bytes | None], context: bytes | None) -> tuple[Parties, Collecting, bytes]:
        all_parties = parties(profile=profile, capacity=40)
        collecting = all_parties.aggregator.begin(1, context=context)
        for user, own in zip(all_parties.users, contexts, strict=True):
            collecting.accept(user.seal(1, vector, context=own))
        return all_parties, collecting, collecting.finish()

    all_parties, collecting, total = collect([mine] * 3, mine)
    published = collecting.publish(all_parties.generator.open(total, context=mine))
    if profile == "full":
        with pytest.raises(RoundFailed):
            all_parties.users[1].check(published, context=other)
    assert all_parties.users[0].check(published, context=mine).weights[0] == 0.75
    # one user, the aggregator or the key generator has another one
    cases: list[tuple[list[bytes | None], bytes, bytes | None]] = [
        ([mine, mine, other], mine, mine),
        ([mine] * 3, other, mine),
        ([mine] * 3, mine, None),
    ]
    for contexts, begun, opened in cases:
        if profile == "sparse" and begun == other:
            continue  # the aggregator has no masks there
        all_parties, collecting, total = collect(contexts, begun)
        with pytest.raises(RoundFailed):
            collecting.decode(collecting.publish(all_parties.generator.open(total, context=opened)))
        with pytest.raises(Refused):
            all_parties.generator.open(total, context=mine if opened is None else other)
    # None stands for zeros
    all_parties, collecting, total = collect([None, other, None], None)
    collecting.decode(collecting.publish(all_parties.generator.open(total, context=other)))
    with pytest.raises(InvalidValue, match="32 bytes"):
        all_parties.users[0].seal(2, vector, context=b"short")


@pytest.mark.parametrize("profile", ["full", "sparse"])
def test_results_that_were_lost_are_given_again(parties: Callable[..., Parties], profile: str) -> None:
    all_parties = parties(profile=profile, capacity=40)
    sealed = [user.seal(1, np.full(40, 0.25)) for user in all_parties.users]
    first, second = all_parties.aggregator.begin(1), all_parties.aggregator.begin(1)
    for update in sealed:
        first.accept(update)
    for update in (sealed[0], sealed[1], User(all_parties.generator.enroll(3)).seal(1, np.full(40, 0.5))):
        second.accept(update)
    total, other = first.finish(), second.finish()
    assert first.finish() == total != other
    opened = all_parties.generator.open(total)
    assert all_parties.generator.open(total) == opened
    # never another sum of the round, and not even one byte of it
    for wrong in (other, total[:-1] + bytes([total[-1] ^ 1])):
        with pytest.raises(Refused) as caught:
            all_parties.generator.open(wrong)
        assert caught.value.code == "committed"
    assert all_parties.generator.open(total) == opened
    assert all_parties.generator.next_round == 2
    published = first.publish(opened)
    assert first.publish(all_parties.generator.open(total)) == published
    assert all_parties.users[0].check(published).weights[0] == 0.75


def test_entries_of_a_sparse_vector_are_sealed_as_the_array(parties: Callable[..., Parties]) -> None:
    for options in ({"block": 4}, {"block": 4, "share": 0.3}, {"share": 0.5}):
        all_parties = parties(**options)
        task = all_parties.task
        for round in (1, 2):
            support = task.support(round)
            assert support is not None
            array = np.zeros(40)
            array[support[::2]] = np.arange(1, len(support[::2]) + 1) / 64
            sparse = SparseVector(40, np.flatnonzero(array), array[np.flatnonzero(array)])
            total = all_parties.sum(round, [sparse, array, SparseVector(40, [], [])])
            assert np.array_equal(total.weights, 2 * array)
        outside = np.setdiff1d(np.arange(40), cast(Any, task.support(3)))
        if outside.size:
            user = all_parties.users[0]
            with pytest.raises(InvalidValue, match=f"value {outside[-1]} is not in the public") as caught:
                user.seal(3, SparseVector(40, outside[-1:], [0.5]))
            assert caught.value.code == "support"
            user.seal(3, SparseVector(40, outside, np.zeros(len(outside))))


def test_a_restored_generator_makes_no_kits_with_other_seeds(
    parties: Callable[..., Parties], secret: DecryptionKey
) -> None:
    all_parties = parties(profile="sparse", capacity=40, bound=False)
    seeds = all_parties.generator.to_unprotected_bytes()
    restored = KeyGenerator.from_unprotected_bytes(seeds, secret)
    for call in (lambda: restored.enroll(1), restored.aggregator_kit):
        with pytest.raises(Refused, match="restored") as caught:
            call()
        assert caught.value.code == "order"
    assert restored.enroll(5).user == 5
    with pytest.raises(Refused):
        restored.aggregator_kit()
    # it still opens sums of users with the kits made before
    all_parties.generator = restored
    assert all_parties.sum(1, [np.full(40, 0.25)] * 3).weights.tolist() == [0.75] * 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_seals_and_opens_nothing(parties: Callable[..., Parties]) -> None:
    all_parties = parties(profile="sparse", capacity=4)
    user, generator = all_parties.users[0], all_parties.generator
    sealed = [each.seal(1, np.zeros(40), threads=1) for each in all_parties.users]
    _, total = all_parties.finish(1, sealed)
    calls: list[Callable[[], object]] = [
        lambda: user.seal(2, np.zeros(40), threads=1),
        lambda: generator.open(total, threads=1),
        lambda: generator.enroll(4),
    ]
    child = os.fork()
    if child == 0:
        refused = 0
        for call in calls:
            try:
                call()
            except Refused:
                refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(calls)
    for call in calls:
        call()


def test_bytes_that_are_cut_or_changed_are_refused(
    parties: Callable[..., Parties], secret: DecryptionKey
) -> None:
    generator = random.Random(7)
    for profile in ("full", "sparse"):
        all_parties = parties(profile=profile, capacity=8)
        sealed = [user.seal(1, np.zeros(40)) for user in all_parties.users]
        collecting, total = all_parties.finish(1, sealed)
        opened = all_parties.generator.open(total)
        published = collecting.publish(opened)
        fresh = Parties(all_parties.task, secret).generator
        readers: list[tuple[bytes, Callable[[bytes], object]]] = [
            (sealed[0], all_parties.aggregator.begin(2).accept),
            (total, fresh.open),
            (opened, collecting.publish),
            (published, all_parties.users[0].check),
        ]
        for whole, read in readers:
            for length in (0, 7, 8, 9, 24, 56, 64, 68, 70, len(whole) - 1):
                with pytest.raises(DpheError):
                    read(whole[:length])
            for position in [*range(0, 57, 3), *(generator.randrange(57) for _ in range(5))]:
                changed = bytearray(whole)
                changed[position] ^= 1 << generator.randrange(8)
                with pytest.raises(DpheError):
                    read(bytes(changed))
            with pytest.raises(DpheError):
                read(whole + b"\0")
            for wrong in ("text", None, 7, [1]):
                with pytest.raises(TypeError):
                    read(wrong)  # type: ignore[arg-type]
        # ciphertexts that are none
        zeros = sealed[1][:-512] + bytes(512)
        other = Parties(all_parties.task, secret)
        with pytest.raises(InvalidValue) as caught:
            other.aggregator.begin(1).accept(zeros)
        assert (caught.value.code, caught.value.culprit) == ("ct_range", 2)


@pytest.mark.parametrize("threads", [0, -1, 1 << 30])
def test_bad_thread_counts_are_refused(parties: Callable[..., Parties], threads: int) -> None:
    all_parties = parties()
    user, collecting = all_parties.users[0], all_parties.aggregator.begin(1)
    sealed = user.seal(1, np.zeros(40), threads=2)
    calls: list[Callable[[], object]] = [
        lambda: user.seal(2, np.zeros(40), threads=threads),
        lambda: collecting.accept(sealed, threads=threads),
        lambda: collecting.finish(threads=threads),
        lambda: all_parties.generator.open(b"", threads=threads),
        lambda: KeyGenerator(all_parties.task, threads=threads),
    ]
    for call in calls:
        with pytest.raises(InvalidValue):
            call()
    assert user.next_round == 2


def test_keys_of_other_lengths_or_noise_are_refused(secret: DecryptionKey, other: DecryptionKey) -> None:
    for wrong, key in (
        (make_task(noise="fast"), secret),
        (make_task(key_bits=3072), secret),
        (make_task(), other),
    ):
        with pytest.raises(KeyMismatch):
            KeyGenerator(wrong, key)
    with pytest.raises(TypeError):
        KeyGenerator(make_task(), secret.encryption_key)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        KeyGenerator("task", secret)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        User(b"kit")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Aggregator(KeyGenerator(make_task(), secret).enroll(1))  # type: ignore[arg-type]


def test_secrets_are_redacted_and_refuse_pickling(parties: Callable[..., Parties]) -> None:
    all_parties = parties()
    kit, aggregator_kit = all_parties.generator.enroll(1), all_parties.generator.aggregator_kit()
    collecting = all_parties.aggregator.begin(1)
    held: list[Any] = [
        kit,
        aggregator_kit,
        all_parties.generator,
        all_parties.aggregator,
        all_parties.users[0],
        collecting,
    ]
    attempts: list[Callable[[Any], object]] = [pickle.dumps, copy.copy, copy.deepcopy]
    secrets = [kit.to_unprotected_bytes(), aggregator_kit.to_unprotected_bytes()]
    secrets.append(all_parties.generator.to_unprotected_bytes())
    for one in held:
        for attempt in attempts:
            for secret in (one, one._native):
                with pytest.raises(TypeError):
                    attempt(secret)
        assert not hasattr(one, "__dict__")
        text = repr(one) + repr(one._native)
        assert not any(data[i : i + 8].hex() in text for data in secrets for i in range(0, len(data) - 40, 8))
    assert "0.5" not in repr(SparseVector(3, [1], [0.5]))
    for data in secrets:
        for wrong in (b"", data[:-1], data + b"\0", data[:60] + bytes([data[60] ^ 1]) + data[61:]):
            for reader in (UserKit.from_unprotected_bytes, AggregatorKit.from_unprotected_bytes):
                with pytest.raises(DpheError):
                    reader(wrong)
    for constructor in (UserKit, AggregatorKit, Collecting, Layout):
        with pytest.raises(TypeError, match="use "):
            constructor()


def test_users_are_restored_from_their_kits(parties: Callable[..., Parties], secret: DecryptionKey) -> None:
    all_parties = parties(profile="sparse", capacity=40)
    first = all_parties.sum(1, [np.full(40, 0.5)] * 3)
    assert first.weights[0] == 1.5
    task = all_parties.task
    kits = [user.kit().to_unprotected_bytes() for user in all_parties.users]
    restored = Parties(task, secret)
    restored.users = [User(UserKit.from_unprotected_bytes(kit)) for kit in kits]
    kit = all_parties.aggregator.kit().to_unprotected_bytes()
    restored.aggregator = Aggregator(AggregatorKit.from_unprotected_bytes(kit))
    seeds = all_parties.generator.to_unprotected_bytes()
    restored.generator = KeyGenerator.from_unprotected_bytes(seeds, secret)
    assert restored.sum(2, [np.full(40, 0.25)] * 3).weights.tolist() == [0.75] * 40
    # the seeds of the first round are gone
    late = User(UserKit.from_unprotected_bytes(kits[0]))
    with pytest.raises(InvalidValue) as caught:
        late.seal(1, np.zeros(40))
    assert caught.value.code == "stale"


_INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np, dphe
from dphe.paillier import DecryptionKey
secret = DecryptionKey.from_unprotected_bytes(bytes.fromhex(sys.argv[1]))
length = 3_000_000
task = dphe.Task(length, users=3, key_bits=2048)
user = dphe.User(dphe.KeyGenerator(task, secret).enroll(1))
if sys.argv[2] == "dense":
    vector = np.zeros(length, np.float32)
else:
    vector = dphe.SparseVector(length, np.arange(0, length, 2), np.full(length // 2, 0.5))
def interrupt():
    time.sleep(0.5)
    times.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)
times = []
threading.Thread(target=interrupt).start()
try:
    user.seal(1, vector)
except KeyboardInterrupt:
    print(time.perf_counter() - times[0], user.next_round)
"""


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_ctrl_c_ends_sealing_and_the_round_can_be_sealed_again(secret: DecryptionKey, kind: str) -> None:
    arguments = [sys.executable, "-c", _INTERRUPTED, secret.to_unprotected_bytes().hex(), kind]
    output = subprocess.run(arguments, capture_output=True, text=True, timeout=100, check=True).stdout
    print("seconds until Ctrl-C took effect, and the next round:", output)
    delay, following = output.split()
    assert following == "1"
    assert float(delay) < 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


_LOST = """
import os, signal, sys, threading, time
import numpy as np, dphe
from dphe.paillier import DecryptionKey
secret = DecryptionKey.from_unprotected_bytes(bytes.fromhex(sys.argv[1]))
length = 3000
task = dphe.Task(length, users=3, key_bits=2048, noise="fast", profile="sparse", share=0.5)
generator = dphe.KeyGenerator(task, secret)
users = [dphe.User(generator.enroll(number)) for number in (1, 2, 3)]
collecting = dphe.Aggregator(generator.aggregator_kit()).begin(1)
vector = np.zeros(length)
vector[:1000] = 0.25

def interrupted(work):
    # the signal comes while `work` runs, which does not look for it
    try:
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
        work()
        time.sleep(5)
    except KeyboardInterrupt:
        return
    sys.exit("no signal came")

interrupted(lambda: users[0].seal(1, vector))
assert users[0].next_round == 1
for user in users:
    collecting.accept(user.seal(1, vector))
interrupted(collecting.finish)
sealed = collecting.finish()
interrupted(lambda: generator.open(sealed))
total = users[0].check(collecting.publish(generator.open(sealed)))
assert total.weights[0] == 0.75
print("ok")
"""


def test_ctrl_c_loses_no_step_of_a_round(other: DecryptionKey) -> None:
    arguments = [sys.executable, "-c", _LOST, other.to_unprotected_bytes().hex()]
    output = subprocess.run(arguments, capture_output=True, text=True, timeout=100, check=False)
    assert (output.stdout, output.stderr) == ("ok\n", "")


_SEALED = """
import sys
import numpy as np, dphe
from dphe.paillier import DecryptionKey
secret = DecryptionKey.from_unprotected_bytes(bytes.fromhex(sys.argv[1]))
length = int(sys.argv[2])
task = dphe.Task(length, users=10, key_bits=2048, noise="fast", clip=1.0)
user = dphe.User(dphe.KeyGenerator(task, secret).enroll(1))
vector = np.full(length, 0.25, np.float32)
def status(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024
before = status("VmRSS")
sealed = user.seal(2, vector)
print(status("VmHWM") - before, len(sealed))
"""


@pytest.mark.timeout(600)
def test_memory_of_sealing_is_little_more_than_the_result(other: DecryptionKey) -> None:
    # DPHE_SEALED_VALUES=10000000 is the long form
    length = int(os.environ.get("DPHE_SEALED_VALUES", "1000000"))
    arguments = [sys.executable, "-c", _SEALED, other.to_unprotected_bytes().hex(), str(length)]
    output = subprocess.run(arguments, capture_output=True, text=True, timeout=590, check=True).stdout
    memory, result = map(int, output.split())
    print(f"{length} values: {memory / 1e6:.0f} MB for a result of {result / 1e6:.0f} MB")
    assert memory < 2 * result + 20e6
    assert memory < 200e6


def test_names_are_exported() -> None:
    for name in ("Task", "User", "Aggregator", "KeyGenerator", "Sum", "Layout", "SparseVector"):
        assert getattr(dphe, name).__doc__
