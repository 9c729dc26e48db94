"""Flower: sealed runs equal plain ones, nothing plain leaves a node, and bad input is refused on the right side."""

from __future__ import annotations

import copy
import functools
import importlib
import json
import multiprocessing
import os
import time
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

flwr = pytest.importorskip("flwr", reason="Flower is not installed; run scripts/setup python")

from dphe.errors import (  # noqa: E402
    DpheError,
    InvalidValue,
    KeyMismatch,
    Refused,
    RoundFailed,
    StorageError,
)
from dphe.flower import (  # noqa: E402
    FileKeyGenerator,
    SecureStrategy,
    Simulation,
    SocketKeyGenerator,
    check_version,
    create_task,
    dphe_mod,
    serve_key_generator,
)
from dphe.flower.client import _Node, content_context  # noqa: E402
from dphe.paillier import DecryptionKey  # noqa: E402
from flwr.app import (  # noqa: E402
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.clientapp.mod import fixedclipping_mod  # noqa: E402
from flwr.serverapp import Grid  # noqa: E402
from flwr.serverapp import strategy as strategies  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402

#: A value is rounded to a multiple of this, and single precision adds its own rounding.
STEP = 2.0**-16
EXAMPLES = [37, 120, 5, 61, 200]
SHAPES = {"conv.weight": (4, 3), "conv.bias": (4,), "scale": ()}


def model(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    return {**arrays, "steps": np.array(7, np.int64)}


def record(arrays: dict[str, Any]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def numbers(arrays: Any) -> dict[str, Any]:
    return {name: array.numpy() for name, array in arrays.items()}


def learn(node: int, number: int, arrays: dict[str, Any]) -> dict[str, Any]:
    """What a node learns: a step that depends on the node, the round and the model."""
    rng = np.random.default_rng([node, number])
    return {
        name: array
        if array.dtype.kind == "i"
        else (0.9 * array + rng.uniform(-0.1, 0.1, array.shape)).astype(array.dtype)
        for name, array in arrays.items()
    }


def partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


def make_app(mods: list[Any], learn: Callable[..., Any] = learn, **reply: Any) -> ClientApp:
    """A quickstart's app. It has no idea of encryption."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        node, number = partition(context), message.content["config"]["server-round"]
        arrays = learn(node, number, numbers(message.content["arrays"]))
        metrics = {
            "num-examples": EXAMPLES[node % len(EXAMPLES)],
            "loss": 2.5 + node,
            "secret-metric": 123.456,
            **reply,
        }
        content = RecordDict({"arrays": record(arrays), "metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        node = partition(context)
        metrics = {"num-examples": EXAMPLES[node % len(EXAMPLES)], "accuracy": 0.5 + node / 10, **reply}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return app


class MemoryGrid(Grid):
    """Runs nodes in this process. It copies every message, as a network does, and keeps what nodes send."""

    def __init__(self, apps: dict[int, ClientApp], configs: dict[int, dict[str, Any]] | None = None) -> None:
        try:  # the identity of the process, which the constructor of messages asks for from flwr 1.38 on
            from flwr.supercore.task_identity import TaskIdentity
        except ImportError:
            pass
        else:
            TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self.apps = apps
        self.contexts = {
            node: Context(1, node, {"partition-id": i, **(configs or {}).get(node, {})}, RecordDict(), {})
            for i, node in enumerate(apps)
        }
        self.replies: dict[str, Message] = {}
        self.sent: list[Message] = []
        self.asked: list[Message] = []
        self.offline: set[int] = set()
        self.on_reply: Callable[[Message], Message] = lambda reply: reply

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.apps)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            name = f"message-{len(self.asked)}"
            copied = copy.deepcopy(message)
            copied.metadata.__dict__["_message_id"] = name
            self.asked.append(copy.deepcopy(copied))
            names.append(name)
            node = message.metadata.dst_node_id
            if node in self.offline:
                continue
            try:
                reply = self.apps[node](copied, self.contexts[node])
            except Exception as error:
                reply = Message(Error(2, str(error)), reply_to=copied)
            self.sent.append(copy.deepcopy(reply))
            self.replies[name] = self.on_reply(reply)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(name) for name in list(message_ids) if name in self.replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return list(self.pull_messages(self.push_messages(messages)))


def nodes(count: int, mods: list[Any], **options: Any) -> dict[int, ClientApp]:
    return {100 + i: make_app(mods, **options) for i in range(count)}


def simulation(secret: DecryptionKey, **options: Any) -> Simulation:
    return Simulation(
        **{
            "max_users": 5,
            "max_examples": 255,
            "key_bits": 2048,
            "key": secret,
            "metrics": ("loss",),
            **options,
        }
    )


def run(
    strategy: Any, grid: MemoryGrid, rounds: int = 3, timeout: float = 0.2
) -> tuple[list[dict[str, Any]], Any]:
    """Run a strategy, and return the models of all rounds and the result."""
    models = []

    def evaluate(number: int, arrays: ArrayRecord) -> None:
        models.append(numbers(arrays))

    result = strategy.start(grid, record(model()), rounds, timeout=timeout, evaluate_fn=evaluate)
    return models, result


def close(found: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
    assert list(found) == list(expected)
    for name in SHAPES:
        assert np.abs(found[name] - expected[name]).max() <= tolerance, name


@pytest.fixture
def kits(tmp_path: Path, secret: DecryptionKey) -> Path:
    folder = tmp_path / "task"
    create_task(folder, model(), users=5, max_examples=255, key_bits=2048, key=secret, metrics=("loss",))
    return folder


def deployed(kits: Path, **options: Any) -> tuple[MemoryGrid, dict[int, Path]]:
    """Nodes with kits of their own, and one node that is the key generator."""
    homes = {100 + i: kits / f"user-{i + 1}" for i in range(4)}
    configs: dict[int, dict[str, Any]] = {node: {"dphe-kit": str(home)} for node, home in homes.items()}
    configs[104] = {"dphe-key-generator": str(kits / "key-generator")}
    return MemoryGrid(nodes(5, [dphe_mod], **options), configs), homes


@pytest.mark.parametrize(
    ("name", "options", "tolerance"),
    [
        ("FedAvg", {}, 2 * STEP),
        ("FedProx", {"proximal_mu": 0.1}, 2 * STEP),
        ("FedAvgM", {"server_momentum": 0.9, "server_learning_rate": 0.5}, 4 * STEP),
        # They divide by the root of a mean square, which is small at first.
        ("FedAdam", {"tau": 0.1}, 20 * STEP),
        ("FedYogi", {"tau": 0.1}, 20 * STEP),
        ("FedAdagrad", {"tau": 0.1}, 20 * STEP),
    ],
)
def test_strategies_compute_what_they_compute_without_encryption(
    name: str, options: dict[str, Any], tolerance: float, secret: DecryptionKey
) -> None:
    kind = getattr(strategies, name)
    plain, expected = run(kind(**options), MemoryGrid(nodes(5, [])))
    secure = SecureStrategy(kind(**options), simulation(secret))
    sealed, found = run(secure, MemoryGrid(nodes(5, [dphe_mod])))
    assert len(sealed) == 4
    for left, right in zip(sealed, plain, strict=True):
        close(left, right, tolerance)
    assert any(not np.array_equal(left["scale"], plain[0]["scale"]) for left in sealed[1:])
    for number in (1, 2, 3):
        loss = expected.train_metrics_clientapp[number]["loss"]
        assert found.train_metrics_clientapp[number]["loss"] == pytest.approx(loss, abs=0.01)
        assert list(found.train_metrics_clientapp[number]) == ["loss"]
    # A counter keeps its value and its type. Flower makes it a float.
    assert sealed[-1]["steps"].dtype == np.int64
    assert sealed[-1]["steps"] == 7


def test_example_counts_are_exact_up_to_the_bits_of_a_weight(secret: DecryptionKey) -> None:
    strategy = SecureStrategy(FedAvg(), simulation(secret))
    run(strategy, MemoryGrid(nodes(5, [dphe_mod])), 1)
    settings = strategy.settings
    assert (settings.weight_bits, settings.unit) == (8, 1)
    assert [settings.weight(count) for count in (0, 1, 37, 255, 9000)] == [0, 1, 37, 255, 255]


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_dropouts_leave_the_mean_of_the_others(share: float, secret: DecryptionKey) -> None:
    grid = MemoryGrid(nodes(5, [dphe_mod]))
    grid.offline = {101, 104}
    strategy = SecureStrategy(FedAvg(), simulation(secret, share=share))
    sealed, _ = run(strategy, grid, 2)
    before = numbers(record(model()))
    weights = {i: EXAMPLES[i] for i in (0, 2, 3)}
    learnt = {i: learn(i, 1, before) for i in weights}
    changed = 0
    for name in SHAPES:
        mean = sum(weights[i] * learnt[i][name].astype(float) for i in weights) / sum(weights.values())
        near = np.abs(sealed[1][name] - mean) <= 2 * STEP
        same = sealed[1][name] == before[name]
        assert (near | same).all()
        changed += int(near.sum())
    assert changed >= 17 if share == 1 else 5 <= changed <= 7


def test_what_a_share_leaves_out_is_sent_later(secret: DecryptionKey) -> None:
    target = learn(9, 9, model())

    def pull(node: int, number: int, arrays: dict[str, Any]) -> dict[str, Any]:
        return {
            name: array if name == "steps" else (array + 0.5 * (target[name] - array)).astype(array.dtype)
            for name, array in arrays.items()
        }

    strategy = SecureStrategy(FedAvg(), simulation(secret, share=0.25, feedback=0.5))
    sealed, _ = run(strategy, MemoryGrid(nodes(3, [dphe_mod], learn=pull)), 16)
    first = sum(float(np.abs(sealed[0][name] - target[name]).sum()) for name in SHAPES)
    last = sum(float(np.abs(sealed[-1][name] - target[name]).sum()) for name in SHAPES)
    assert last < 0.05 * first


def test_sealed_evaluation_gives_the_plain_means(secret: DecryptionKey) -> None:
    options = {"evaluation": "sealed", "evaluate_metrics": {"accuracy": 1.0}}
    _, expected = run(FedAvg(), MemoryGrid(nodes(5, [])), 2)
    _, found = run(
        SecureStrategy(FedAvg(), simulation(secret, **options)), MemoryGrid(nodes(5, [dphe_mod])), 2
    )
    for number in (1, 2):
        accuracy = expected.evaluate_metrics_clientapp[number]["accuracy"]
        assert found.evaluate_metrics_clientapp[number]["accuracy"] == pytest.approx(accuracy, abs=1e-4)


def test_evaluation_is_off_unless_the_task_says_otherwise(secret: DecryptionKey) -> None:
    _, found = run(SecureStrategy(FedAvg(), simulation(secret)), MemoryGrid(nodes(3, [dphe_mod])), 1)
    assert not found.evaluate_metrics_clientapp
    clear = SecureStrategy(FedAvg(), simulation(secret, evaluation="clear"))
    _, found = run(clear, MemoryGrid(nodes(3, [dphe_mod])), 1)
    assert found.evaluate_metrics_clientapp[1]["accuracy"] > 0.5


def content_bytes(message: Message) -> bytes:
    """Everything that a message carries."""
    if message.has_error():
        return str(message.error.reason).encode()
    parts = []
    for name, records in message.content.items():
        parts.append(name.encode())
        for key, value in records.items():
            parts += [key.encode(), value.data if isinstance(value, Array) else repr(value).encode()]
            if isinstance(value, int | float):
                parts += [np.float64(value).tobytes(), np.float32(value).tobytes()]
                parts.append(int(value).to_bytes(8, "little", signed=True))
    return b"\0".join(parts)


def test_nothing_that_leaves_a_node_has_a_weight_an_example_count_or_a_label(secret: DecryptionKey) -> None:
    label = "label-of-a-patient"
    seen: list[dict[str, Any]] = []

    def remember(node: int, number: int, arrays: dict[str, Any]) -> dict[str, Any]:
        seen.append(learn(node, number, arrays))
        return seen[-1]

    def fail(message: Message, context: Context, call_next: Any) -> Message:
        if context.node_config["partition-id"] == 4 and message.content["config"]["server-round"] == 2:
            raise ValueError(f"cannot convert {label!r} to a number")
        reply: Message = call_next(message, context)
        reply.content["labels"] = ConfigRecord({"labels": [label]})
        return reply

    secrets: dict[str, Any] = {"accuracy": 0.8765, "num-examples": 199}
    mods = [dphe_mod, fail]
    apps = {100 + i: make_app(mods, learn=remember, **secrets) for i in range(5)}
    plain = MemoryGrid({100 + i: make_app([fail], **secrets) for i in range(5)})
    sealed = MemoryGrid(apps)
    options = {"evaluation": "sealed", "evaluate_metrics": ("accuracy",)}
    run(SecureStrategy(FedAvg(), simulation(secret, **options)), sealed)

    def findings(grid: MemoryGrid) -> set[str]:
        sent = b"\1".join(content_bytes(message) for message in grid.sent)
        found: set[str] = set()
        for arrays in seen:
            for name, array in arrays.items():
                if name != "steps":
                    values = array.reshape(-1).tolist()
                    forms = [np.float32(value).tobytes() for value in values]
                    forms += [np.float64(value).tobytes() for value in values]
                    found.update(name for form in forms if form in sent)
        found.update(name for name in ("conv.weight", "secret-metric", label) if name.encode() in sent)
        found.update(text for text in ("123.456", "0.8765", "199") if text.encode() in sent)
        return found

    assert findings(sealed) == set()
    # The same search finds them in a plain run, so it can find them.
    run(FedAvg(), plain)
    assert findings(plain) >= {"conv.weight", "secret-metric", label, "123.456", "0.8765", "199"}


def test_a_designated_node_is_the_key_generator(kits: Path) -> None:
    grid, _ = deployed(kits)
    secure = SecureStrategy(FedAvg(), kits / "aggregator.kit")
    sealed, _ = run(secure, grid)
    plain, _ = run(FedAvg(), MemoryGrid(nodes(4, [])))
    for left, right in zip(sealed, plain, strict=True):
        close(left, right, 2 * STEP)
    kinds = [message.content["dphe"]["kind"] for message in grid.asked if message.metadata.dst_node_id == 104]
    assert kinds == ["hello", "open", "open", "open"]
    # It gets sums and no updates, and the server gets no key.
    assert not any("simulation" in str(m.content["dphe"].get("simulation", "")) for m in grid.asked)


def test_a_process_opens_sums_over_a_socket(kits: Path, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    server = multiprocessing.get_context("spawn").Process(
        target=serve_key_generator, args=(kits / "key-generator", path), kwargs={"requests": 3}
    )
    server.start()
    try:
        for _ in range(1000):
            if path.exists():
                break
            time.sleep(0.05)
        grid, _ = deployed(kits)
        grid.contexts[104].node_config["dphe-key-generator"] = f"unix:{path}"
        sealed, _ = run(SecureStrategy(FedAvg(), kits / "aggregator.kit"), grid, 2)
        assert len(sealed) == 3
        assert not np.array_equal(sealed[1]["scale"], sealed[2]["scale"])
        with pytest.raises(DpheError) as refused:
            SocketKeyGenerator(path).open("train", b"nonsense", bytes(32))
        assert refused.value.code in ("encoding", "version")
        server.join(20)
        assert server.exitcode == 0
    finally:
        server.kill()
    with pytest.raises(StorageError, match="does not answer"):
        SocketKeyGenerator(path).open("train", b"", bytes(32))


def test_a_key_generator_opens_one_sum_per_round_over_restarts(kits: Path) -> None:
    grid, homes = deployed(kits)
    sums: list[tuple[Any, ...]] = []

    class Recording:
        def open(self, *request: Any) -> bytes:
            sums.append(request)
            return FileKeyGenerator(kits / "key-generator").open(*request)

    del grid.apps[104]
    run(SecureStrategy(FedAvg(), kits / "aggregator.kit", key_generator=Recording()), grid, 2)
    (first, second) = sums
    again = FileKeyGenerator(kits / "key-generator")
    assert again.open(*second) == again.open(*second)
    with pytest.raises(Refused):
        again.open(*first)
    for context in (bytes(32), first[2]):
        with pytest.raises(Refused):
            again.open("train", second[1], context)
    assert len(homes) == 4


@pytest.mark.parametrize("what", ["arrays", "config"])
def test_a_server_cannot_single_out_a_node_by_what_it_sends(what: str, kits: Path) -> None:
    """One node gets another model or step size than the others, so that its update stands out in the sum."""
    grid, homes = deployed(kits)
    generator = FileKeyGenerator(kits / "key-generator")
    strategy = SecureStrategy(FedAvg(), kits / "aggregator.kit", key_generator=generator)
    strategy._prepare(record(model()))
    settings = strategy.settings
    contexts = {}
    updates = []
    for node in (100, 101, 102):
        single = node == 100
        config: dict[str, Any] = {"server-round": 1, "lr": 0.1 if single and what == "config" else 0.0}
        content = RecordDict(
            {
                "arrays": record(model(seed=1 if single and what == "arrays" else 0)),
                "config": ConfigRecord(config),
            }
        )
        contexts[node] = content_context(settings, "train", content)
        fields: dict[str, Any] = {
            "version": 1,
            "kind": "train",
            "settings": settings.digest,
            "simulation": "",
            "round": 1,
            "context": contexts[node],
            "included": [],
        }
        content["dphe"] = ConfigRecord(fields)
        (name,) = grid.push_messages([Message(content, node, "train")])
        (reply,) = grid.pull_messages([name])
        updates.append(next(iter(reply.content.array_records["arrays"].values())).data)
    assert contexts[100] != contexts[101] == contexts[102]
    collecting = strategy._aggregators["train"].begin(1, context=contexts[101])
    for update in updates:
        collecting.accept(update)
    opened = generator.open("train", collecting.finish(), contexts[101])
    with pytest.raises(DpheError):
        collecting.decode(collecting.publish(opened))
    assert len(homes) == 4


def kind_of(content: Any) -> str:
    return str(content.get("dphe", {}).get("kind", ""))


def ask(grid: MemoryGrid, node: int, change: Callable[[Any], None] | None = None) -> Message:
    """Repeat the last message of training to a node, changed."""
    message = next(
        message
        for message in reversed(grid.asked)
        if message.metadata.dst_node_id == node and "round" in message.content.get("dphe", {})
    )
    content = copy.deepcopy(message.content)
    if change is not None:
        change(content)
    kind = "evaluate" if "evaluate" in kind_of(content) else "train"
    (name,) = grid.push_messages([Message(content, node, kind)])
    (reply,) = grid.pull_messages([name])
    return reply


def test_a_round_is_sealed_once(kits: Path) -> None:
    grid, homes = deployed(kits)
    run(SecureStrategy(FedAvg(), kits / "aggregator.kit"), grid, 2)
    sent = [m for m in grid.sent if m.metadata.src_node_id == 100][-1]
    before = (homes[100] / "train.kit").read_bytes()
    # The same question has the same answer, and the app does not train again.
    again = ask(grid, 100)
    assert content_bytes(again) == content_bytes(sent)

    def other_model(content: Any) -> None:
        content["arrays"] = record(model(seed=3))
        node = _Node(homes[100])
        content["dphe"]["context"] = content_context(node.settings, "train", content)

    def set_round(number: int) -> Callable[[Any], None]:
        return lambda content: content["dphe"].__setitem__("round", number)

    refused = {
        "conflict": other_model,
        "stale": set_round(1),
        "range": set_round(0),
        "future": set_round(1 << 40),
    }
    for code, change in refused.items():
        reply = ask(grid, 100, change)
        assert reply.has_error()
        assert f"({code})" in str(reply.error.reason), reply.error.reason
    assert (homes[100] / "train.kit").read_bytes() == before


def test_a_kit_keeps_no_seeds_of_a_round_that_was_sealed(kits: Path) -> None:
    grid, homes = deployed(kits)
    run(SecureStrategy(FedAvg(), kits / "aggregator.kit"), grid, 1)
    (homes[100] / "train.update").unlink()  # an app or an operator that would forget the upload
    reply = ask(grid, 100)
    assert "(stale)" in str(reply.error.reason)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda content: content.pop("dphe"), "policy"),
        (lambda content: content.__setitem__("dphe", MetricRecord({"round": 1})), "encoding"),
        (lambda content: content["dphe"].__setitem__("version", 2), "version"),
        (lambda content: content["dphe"].__setitem__("settings", "0" * 64), "task"),
        (lambda content: content["dphe"].__setitem__("context", bytes(32)), "model"),
        (lambda content: content["config"].__setitem__("lr", 0.5), "model"),
        (lambda content: content["dphe"].__setitem__("kind", "plain"), "encoding"),
        (lambda content: content["dphe"].__setitem__("kind", "open"), "role"),
        (lambda content: content["dphe"].__setitem__("kind", "evaluate"), "policy"),
        (lambda content: content["dphe"].__setitem__("kind", "evaluate-clear"), "policy"),
        (lambda content: content["dphe"].__setitem__("round", "2"), "encoding"),
        (lambda content: content.pop("arrays"), "encoding"),
        (lambda content: content["arrays"].pop("scale"), "model"),
        (lambda content: content["arrays"].__setitem__("scale", Array(np.zeros(3, np.float32))), "model"),
        (lambda content: content["arrays"].__setitem__("scale", Array(np.zeros((), np.float64))), "model"),
        (lambda content: content["arrays"].__setitem__("more", Array(np.zeros(3, np.float32))), "model"),
    ],
)
def test_nodes_refuse_what_a_server_must_not_ask(
    change: Callable[[RecordDict], None], code: str, kits: Path
) -> None:
    grid, homes = deployed(kits)
    run(SecureStrategy(FedAvg(), kits / "aggregator.kit"), grid, 1)
    before = (homes[100] / "train.kit").read_bytes()
    reply = ask(grid, 100, change)
    assert reply.has_error()
    assert f"({code})" in str(reply.error.reason), reply.error.reason
    assert (homes[100] / "train.kit").read_bytes() == before


def test_metrics_of_training_cannot_be_asked_for_as_those_of_an_evaluation(
    tmp_path: Path, secret: DecryptionKey
) -> None:
    kits = tmp_path / "task"
    create_task(
        kits,
        model(),
        users=5,
        max_examples=255,
        key_bits=2048,
        key=secret,
        evaluation="clear",
        metrics=("loss",),
    )
    grid, _ = deployed(kits)
    run(SecureStrategy(FedAvg(), kits / "aggregator.kit"), grid, 1)
    asked = next(m for m in grid.asked if kind_of(m.content) == "evaluate-clear")
    node = asked.metadata.dst_node_id
    for kind in ("train", "evaluate"):
        (name,) = grid.push_messages([Message(copy.deepcopy(asked.content), node, kind)])
        (reply,) = grid.pull_messages([name])
        assert b"secret-metric" not in content_bytes(reply)
        assert reply.has_error() == (kind != "evaluate")
        assert not reply.has_error() or "(type)" in str(reply.error.reason)


def test_the_site_decides_whether_plain_results_may_leave(kits: Path) -> None:
    grid, _ = deployed(kits)
    del grid.apps[104]
    plain, result = run(FedAvg(), grid, 1)
    assert not result.train_metrics_clientapp
    assert np.array_equal(plain[0]["scale"], plain[1]["scale"])
    assert all("(policy)" in str(m.error.reason) for m in grid.sent)
    for context in grid.contexts.values():
        context.node_config["dphe-policy"] = "optional"
    plain, _ = run(FedAvg(), grid, 1)
    assert not np.array_equal(plain[0]["scale"], plain[1]["scale"])


def test_nodes_without_kits_take_part_in_simulations_on_their_machine_only(
    kits: Path, secret: DecryptionKey, tmp_path: Path
) -> None:
    grid = MemoryGrid(nodes(3, [dphe_mod]))
    strategy = SecureStrategy(
        FedAvg(), kits / "aggregator.kit", key_generator=FileKeyGenerator(kits / "key-generator"), patience=1
    )
    with pytest.raises(RoundFailed):
        run(strategy, grid, 1)
    assert all("has no kit" in str(m.error.reason) for m in grid.sent)
    grid = MemoryGrid(nodes(3, [dphe_mod]))
    folder = tmp_path / "shared"
    strategy = SecureStrategy(FedAvg(), simulation(secret, folder=folder), patience=1)
    strategy._prepare(record(model()))
    for home in folder.glob("user-*"):
        home.chmod(0o755)
    with pytest.raises(RoundFailed):
        run(strategy, grid, 1)
    assert all("somebody else" in str(m.error.reason) for m in grid.sent)


def poison(value: Any, node: int = 100) -> Callable[..., Any]:
    def poisoned(index: int, number: int, arrays: dict[str, Any]) -> dict[str, Any]:
        learnt = learn(index, number, arrays)
        return value(learnt) if index == node - 100 else learnt

    return poisoned


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda arrays: {**arrays, "conv.bias": np.array([0, np.nan, 0, 0], np.float32)},
            "'conv.bias': value 1",
        ),
        (lambda arrays: {**arrays, "scale": np.array(np.inf, np.float32)}, "'scale'"),
        (lambda arrays: {**arrays, "scale": np.array(99, np.float32)}, "'scale' changed by more than"),
        (lambda arrays: {**arrays, "scale": np.zeros(2, np.float32)}, "'scale' has shape (2,)"),
        (lambda arrays: {**arrays, "scale": np.zeros((), np.float64)}, "dtype float64"),
        (lambda arrays: {"scale": arrays["scale"]}, "is missing"),
        (lambda arrays: {**arrays, "other": arrays["scale"]}, "'other' is not part"),
    ],
)
def test_what_cannot_be_sealed_is_refused_on_its_node(
    change: Callable[..., Any], reason: str, secret: DecryptionKey
) -> None:
    grid = MemoryGrid(nodes(4, [dphe_mod], learn=poison(change)))
    sealed, _ = run(SecureStrategy(FedAvg(), simulation(secret)), grid, 1)
    errors = [str(m.error.reason) for m in grid.sent if m.has_error()]
    assert len(errors) == 1
    assert reason in errors[0]
    # The round goes on without the node.
    assert not np.array_equal(sealed[0]["conv.bias"], sealed[1]["conv.bias"])


def test_values_are_cut_before_they_are_weighted(secret: DecryptionKey) -> None:
    grid = MemoryGrid(
        nodes(3, [dphe_mod], learn=poison(lambda arrays: {**arrays, "scale": arrays["scale"] + 3}))
    )
    sealed, _ = run(SecureStrategy(FedAvg(), simulation(secret, on_clip="clip")), grid, 1)
    before = numbers(record(model()))
    changes = [learn(node, 1, before)["scale"] - before["scale"] for node in range(3)]
    # The first node has 37 examples of at most 255. Its change is cut at 1, not at 255 / 37.
    changes[0] = 1.0
    mean = np.average(changes, weights=EXAMPLES[:3])
    assert abs(sealed[1]["scale"] - before["scale"] - mean) <= 4 * STEP


def test_texts_of_nodes_cannot_forge_lines_of_the_log(
    secret: DecryptionKey, caplog: pytest.LogCaptureFixture
) -> None:
    grid = MemoryGrid(nodes(4, [dphe_mod]))

    def forge(reply: Message) -> Message:
        if reply.metadata.src_node_id != 100:
            return reply
        text = "x\r\nWARNING: forged \x1b[2J\u202e" + 10_000 * "y"
        reply.content.clear()
        reply.__dict__["_error"] = Error(2, text)
        reply.__dict__["_content"] = None
        return reply

    grid.on_reply = forge
    run(SecureStrategy(FedAvg(), simulation(secret)), grid, 1)
    (line,) = [r.getMessage() for r in caplog.records if "node 100 is left out" in r.getMessage()]
    assert "x\ufffd\ufffdWARNING: forged \ufffd[2J\ufffdyyy" in line
    assert len(line) < 400


@pytest.mark.parametrize("metrics", [{"loss": float("nan")}, {"loss": [1.0]}, {"num-examples": -1}])
def test_metrics_that_cannot_be_averaged_are_refused(metrics: dict[str, Any], secret: DecryptionKey) -> None:
    grid = MemoryGrid(nodes(3, [dphe_mod], **metrics))
    with pytest.raises(RoundFailed):
        run(SecureStrategy(FedAvg(), simulation(secret), patience=1), grid, 1)
    assert {m.has_error() for m in grid.sent} == {True}


def test_replies_that_do_not_belong_to_the_round_are_left_out(secret: DecryptionKey) -> None:
    grid = MemoryGrid({**nodes(4, [dphe_mod]), 104: make_app([])})  # one node has no mod
    first: dict[int, Message] = {}

    def spoil(reply: Message) -> Message:
        node = reply.metadata.src_node_id
        if node == 100 and node in first:
            reply.content["arrays"] = first[node].content["arrays"]  # its update of the first round
        first.setdefault(node, copy.deepcopy(reply))
        return reply

    grid.on_reply = spoil
    strategy = SecureStrategy(FedAvg(), simulation(secret))
    sealed, _ = run(strategy, grid, 2)
    weights = {i: EXAMPLES[i] for i in (1, 2, 3)}
    learnt = {i: learn(i, 2, sealed[1]) for i in weights}
    mean = sum(weights[i] * learnt[i]["conv.bias"].astype(float) for i in weights) / sum(weights.values())
    assert np.abs(sealed[2]["conv.bias"] - mean).max() <= 2 * STEP


def test_two_replies_of_one_user_count_once(secret: DecryptionKey) -> None:
    grid = MemoryGrid(nodes(4, [dphe_mod]))
    grid.contexts[103].node_config["partition-id"] = 2  # a kit that was copied
    strategy = SecureStrategy(FedAvg(), simulation(secret))
    sealed, _ = run(strategy, grid, 1)
    weights = {i: EXAMPLES[i] for i in (0, 1, 2)}
    learnt = {i: learn(i, 1, sealed[0]) for i in weights}
    mean = sum(weights[i] * learnt[i]["conv.bias"].astype(float) for i in weights) / sum(weights.values())
    assert np.abs(sealed[1]["conv.bias"] - mean).max() <= 2 * STEP


def test_a_round_with_too_few_users_leaves_the_model_and_the_run_ends_at_last(secret: DecryptionKey) -> None:
    grid = MemoryGrid(nodes(4, [dphe_mod]))
    grid.offline = {100, 101}
    strategy = SecureStrategy(FedAvg(), simulation(secret), patience=2)
    models: list[Any] = []

    def watch(number: int, arrays: ArrayRecord) -> None:
        models.append(numbers(arrays))
        grid.offline = {100, 101} if number != 1 else {100}  # three users in the second round only

    with pytest.raises(RoundFailed, match="2 rounds in a row"):
        strategy.start(grid, record(model()), 9, timeout=0.1, evaluate_fn=watch)
    assert len(models) == 4
    assert np.array_equal(models[0]["scale"], models[1]["scale"])
    assert not np.array_equal(models[1]["scale"], models[2]["scale"])
    assert np.array_equal(models[2]["scale"], models[3]["scale"])


@pytest.mark.parametrize("name", ["FedAvg", "FedAvgM", "FedAdam"])
def test_a_run_goes_on_after_a_crash_of_the_server(name: str, kits: Path) -> None:
    options = {"tau": 0.1} if name == "FedAdam" else {}
    kind = getattr(strategies, name)

    class Crash(BaseException):
        pass

    grid, _ = deployed(kits)
    once: list[int] = []

    def crash(reply: Message) -> Message:
        training = not reply.has_error() and "metrics" in reply.content
        if training and grid.asked[-1].content["config"]["server-round"] == 3 and len(once) < 2:
            once.append(1)
            if len(once) == 2:
                raise Crash
        return reply

    grid.on_reply = crash
    with pytest.raises(Crash):
        run(SecureStrategy(kind(**options), kits / "aggregator.kit"), grid, 4)
    grid.replies.clear()
    sealed, result = run(SecureStrategy(kind(**options), kits / "aggregator.kit"), grid, 4)
    plain, _ = run(kind(**options), MemoryGrid(nodes(4, [])), 4)
    close(sealed[0], plain[2], 20 * STEP)  # the run goes on after the second round
    close(sealed[-1], plain[4], 20 * STEP)
    assert len(sealed) == 3
    assert sorted(result.train_metrics_clientapp) == [3, 4]
    records: list[Any] = [m.content["dphe"] for m in grid.asked]
    rounds = [fields["round"] for fields in records if "round" in fields]
    assert sorted(set(rounds)) == [1, 2, 3, 4, 5]  # the third was abandoned
    done, result = run(SecureStrategy(kind(**options), kits / "aggregator.kit"), grid, 4)
    assert len(done) == 1
    close(done[0], sealed[-1], 0)
    assert list(result.arrays) == list(model())
    with pytest.raises(InvalidValue, match="run of"):
        run(SecureStrategy(strategies.FedYogi(), kits / "aggregator.kit"), grid, 4)


@pytest.mark.parametrize("name", ["FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "Bulyan", "QFedAvg"])
def test_strategies_that_need_single_updates_are_refused(name: str, secret: DecryptionKey) -> None:
    options = {"FedTrimmedAvg": {}, "QFedAvg": {"client_learning_rate": 0.1}}.get(name, {})
    inner = getattr(strategies, name)(**options)
    with pytest.raises(Refused, match="need single updates") as refused:
        SecureStrategy(inner, simulation(secret))
    assert refused.value.code == "strategy"


def test_strategies_that_ask_nodes_different_things_are_refused(secret: DecryptionKey) -> None:
    class PerNode(FedAvg):
        def configure_train(self, *args: Any, **kwargs: Any) -> Iterable[Message]:
            messages = list(super().configure_train(*args, **kwargs))
            for message in messages:
                message.content = copy.deepcopy(message.content)
                message.content["config"] = ConfigRecord({"lr": 0.1 * (message.metadata.dst_node_id - 100)})
            return messages

    grid = MemoryGrid(nodes(3, [dphe_mod]))
    with pytest.raises(InvalidValue, match="different arrays or configurations"):
        run(SecureStrategy(PerNode(), simulation(secret)), grid, 1)
    assert not grid.sent


def test_other_strategies_are_taken_only_if_the_caller_says_so(secret: DecryptionKey) -> None:
    class Mine(FedAvg):
        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            return super().aggregate_train(server_round, replies)

    class Sampling(FedAvg):
        """Keeps the aggregate."""

    with pytest.raises(Refused, match="Mine is not known"):
        SecureStrategy(Mine(), simulation(secret))
    SecureStrategy(Mine(), simulation(secret), mean_only=True)
    SecureStrategy(Sampling(), simulation(secret))
    with pytest.raises(Refused, match="train_metrics_aggr_fn"):
        SecureStrategy(FedAvg(train_metrics_aggr_fn=lambda records, key: MetricRecord()), simulation(secret))
    clipping = strategies.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 3)
    with pytest.raises(Refused, match="need single updates"):
        SecureStrategy(clipping, simulation(secret))
    with pytest.raises(TypeError, match="a strategy of flwr"):
        SecureStrategy("FedAvg", simulation(secret))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a key generator of its own"):
        SecureStrategy(FedAvg(), simulation(secret), key_generator=object())  # type: ignore[arg-type]


def test_differential_privacy_on_the_nodes_runs_around_it(secret: DecryptionKey) -> None:
    secure = SecureStrategy(FedAvg(), simulation(secret))
    clipping = strategies.DifferentialPrivacyClientSideFixedClipping(secure, 0.0, 0.25, 4)
    # In a second round without encryption, the norm would have the counter, which Flower makes a float.
    sealed, _ = run(clipping, MemoryGrid(nodes(4, [dphe_mod, fixedclipping_mod])), 1)
    plain_clipping = strategies.DifferentialPrivacyClientSideFixedClipping(FedAvg(), 0.0, 0.25, 4)
    plain, _ = run(plain_clipping, MemoryGrid(nodes(4, [fixedclipping_mod])), 1)
    for left, right in zip(sealed, plain, strict=True):
        close(left, right, 2 * STEP)


def test_kits_of_other_tasks_and_models_are_refused(
    kits: Path, tmp_path: Path, secret: DecryptionKey
) -> None:
    other = tmp_path / "other"
    create_task(other, model(), users=3, max_examples=255, key_bits=2048, key=secret)
    grid, _ = deployed(kits)
    strategy = SecureStrategy(
        FedAvg(), kits / "aggregator.kit", key_generator=FileKeyGenerator(other / "key-generator")
    )
    with pytest.raises(KeyMismatch, match="another task"):
        run(strategy, grid, 1)
    with pytest.raises(InvalidValue, match="is missing"):
        SecureStrategy(FedAvg(), kits / "aggregator.kit").start(grid, record({"scale": np.zeros(3)}))
    with pytest.raises(InvalidValue, match="weight_key='examples'"):
        run(SecureStrategy(FedAvg(weighted_by_key="examples"), kits / "aggregator.kit"), grid, 1)
    with pytest.raises(StorageError, match="cannot be read"):
        run(SecureStrategy(FedAvg(), tmp_path / "nothing"), grid, 1)
    damaged = tmp_path / "damaged"
    damaged.write_bytes((kits / "aggregator.kit").read_bytes()[:-1])
    with pytest.raises(StorageError, match="damaged"):
        run(SecureStrategy(FedAvg(), damaged), grid, 1)


def test_files_are_private_and_hold_a_sealed_key(tmp_path: Path, secret: DecryptionKey) -> None:
    folder = tmp_path / "task"
    passphrase = b"a long passphrase"
    create_task(folder, model(), users=3, max_examples=None, key_bits=2048, key=secret, passphrase=passphrase)
    for path in [folder, *folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    secret_bytes = secret.to_unprotected_bytes()[-256:]
    assert not any(secret_bytes in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    with pytest.raises(Refused, match="passphrase"):
        FileKeyGenerator(folder / "key-generator")
    FileKeyGenerator(folder / "key-generator", passphrase)
    with pytest.raises(StorageError, match="cannot be made"):
        create_task(folder, model(), users=3, max_examples=None, key_bits=2048, key=secret)


@pytest.mark.parametrize(
    "options",
    [
        {"max_examples": 0},
        {"users": 0},
        {"evaluation": "open"},
        {"evaluate_metrics": ("accuracy",)},
        {"metrics": {"loss": 0.0}},
        {"metrics": ("loss", "loss")},
        {"scale_bits": 0},
        {"clip": 0.3},
        {"feedback": 1.5},
        {"feedback": float("nan")},
        {"passphrase": b"short"},
    ],
)
def test_settings_out_of_range_are_refused(
    options: dict[str, Any], tmp_path: Path, secret: DecryptionKey
) -> None:
    given = {"users": 3, "max_examples": 10, "key_bits": 2048, "key": secret, **options}
    with pytest.raises(InvalidValue):
        create_task(tmp_path / "task", model(), **given)
    assert not os.listdir(tmp_path)


def test_versions_of_flower_that_were_not_tested_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1.32.0", "1.41.0", "1.42.3"):
        check_version(version)
    for version in ("1.31.9", "1.43.0", "2.0.0", "unknown"):
        with pytest.raises(Refused, match="DPHE_FLOWER_UNTESTED"):
            check_version(version)
    monkeypatch.setenv("DPHE_FLOWER_UNTESTED", "1")
    check_version("1.43.0")


def test_states_of_a_server_name_no_seeds_or_updates(kits: Path) -> None:
    grid, _ = deployed(kits)
    run(SecureStrategy(FedAvg(), kits / "aggregator.kit"), grid, 1)
    state = kits / "aggregator.kit.state"
    assert sorted(path.name for path in state.iterdir()) == ["checkpoint", "rounds.json"]
    assert json.loads((state / "rounds.json").read_text())["next"] == {"train": 2, "evaluate": 1}


EXAMPLES_FOLDER = Path(__file__).resolve().parents[3] / "examples" / "python"


def run_example(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch, secret: DecryptionKey, **config: Any
) -> tuple[float, MemoryGrid]:
    """Run an app of the examples, and return the accuracy that it prints."""
    monkeypatch.syspath_prepend(EXAMPLES_FOLDER / name)
    client = importlib.import_module(f"{package}.client_app")
    server = importlib.import_module(f"{package}.server_app")
    settings = tomllib.loads((EXAMPLES_FOLDER / name / "pyproject.toml").read_text())
    defaults = settings["tool"]["flwr"]["app"]["config"]
    monkeypatch.setattr(server, "Simulation", functools.partial(Simulation, key=secret, key_bits=2048))
    configs: dict[int, dict[str, Any]] = {100 + i: {"num-partitions": 5} for i in range(5)}
    if config.pop("plain", False):
        monkeypatch.setattr(server, "SecureStrategy", lambda strategy, kit: strategy)
        for node in configs:
            configs[node]["dphe-policy"] = "optional"
    grid = MemoryGrid(dict.fromkeys(configs, client.app), configs)
    for context in grid.contexts.values():
        context.run_config = {**defaults, **config}
    found: list[float] = []
    evaluate = server.evaluate

    def watch(number: int, arrays: ArrayRecord) -> Any:
        metrics = evaluate(number, arrays)
        found.append(metrics["accuracy"])
        return metrics

    monkeypatch.setattr(server, "evaluate", watch)
    server.app(grid, Context(1, 1, {}, RecordDict(), {**defaults, **config}))
    return found[-1], grid


def test_the_example_with_scikit_learn_is_as_accurate_as_without_encryption(
    monkeypatch: pytest.MonkeyPatch, secret: DecryptionKey
) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    with monkeypatch.context() as patch:
        sealed, grid = run_example("flower_sklearn", "digits_sklearn", patch, secret)
    with monkeypatch.context() as patch:
        plain, _ = run_example("flower_sklearn", "digits_sklearn", patch, secret, plain=True)
    assert sealed > 0.9
    assert abs(sealed - plain) <= 0.005
    assert not any(m.has_error() for m in grid.sent)


def test_the_example_with_torch_learns(monkeypatch: pytest.MonkeyPatch, secret: DecryptionKey) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    with monkeypatch.context() as patch:
        accuracy, grid = run_example("flower_torch", "digits_torch", patch, secret)
    assert not any(m.has_error() for m in grid.sent)
    assert accuracy > 0.5
