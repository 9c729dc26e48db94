"""The server's side: a strategy that hands another one the mean of what nodes have sealed."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
    FedYogi,
    Result,
    Strategy,
)
from numpy.typing import NDArray

from dphe.errors import DpheError, InvalidValue, KeyMismatch, Refused, RoundFailed, TooFewUsers
from dphe.flower.client import RECORD, VERSION, content_context, unwrap, wrap
from dphe.flower.files import make_folder, read_file, write_file
from dphe.flower.key_generator import FileKeyGenerator, SumOpener
from dphe.flower.kits import (
    CHANNELS,
    Channel,
    Evaluation,
    Settings,
    check_same_task,
    create_task,
    join_parts,
    read_aggregator_kit,
    split_parts,
)
from dphe.paillier import DecryptionKey
from dphe.roles import Aggregator, AggregatorKit, Collecting

_log = logging.getLogger("flwr")

#: Strategies whose aggregate is a function of the weighted mean.
_MEANS = (FedAvg, FedAvgM, FedAdagrad, FedAdam, FedProx, FedYogi)
#: What an inner strategy may keep between rounds.
_INNER_STATE = ("current_arrays", "momentum_vector", "m_t", "v_t")
_CHECKPOINT = b"DPHEFLC1"
#: How many of a node's latest rounds it is told about.
_REMEMBERED = 16
#: How much of a node's text is logged.
_LONGEST_REASON = 300


@dataclass(frozen=True)
class Simulation:
    """Kits for a simulation, made when the run starts. **It protects nothing**: this machine has all keys.

    The nodes of Flower's simulation engine are on this machine, too, and find their kits by their ``partition-id``. The
    fields are those of :func:`~dphe.flower.create_task`, with ``max_users`` for the number of kits. With a ``folder``,
    another run goes on with the same task; otherwise kits are temporary.
    """

    max_users: int
    max_examples: int | None
    weight_bits: int | None = None
    weight_key: str = "num-examples"
    metrics: Mapping[str, float] | Iterable[str] = ()
    evaluation: Evaluation = "off"
    evaluate_metrics: Mapping[str, float] | Iterable[str] = ()
    share: float = 1.0
    feedback: float = 0.9
    scale_bits: int = 16
    clip: float = 1.0
    on_clip: Literal["error", "clip"] = "error"
    scales: Mapping[str, float] | None = None
    skip: Iterable[str] = ()
    noise: Literal["secure", "fast"] = "secure"
    key_bits: int = 3072
    min_users: int = 3
    folder: str | Path | None = None
    key: DecryptionKey | None = None

    def create(self, folder: Path, model: Mapping[str, Any]) -> None:
        """Make the kits of all parties."""
        options = {name: getattr(self, name) for name in self.__dataclass_fields__}
        del options["folder"], options["max_users"]
        create_task(folder, model, users=self.max_users, **options)


class SecureStrategy(Strategy):
    """Runs a strategy on the mean of sealed updates.

    ``strategy`` is one of Flower's whose aggregate is a function of the weighted mean: FedAvg, FedAvgM, FedAdagrad,
    FedAdam, FedYogi, FedProx, and subclasses that keep their ``aggregate_train``. It gets one reply per round, which
    has the mean. Strategies that need single updates, such as a median, are refused. ``mean_only=True`` takes a
    strategy that is not known here.

    ``kit`` is the path of ``aggregator.kit``, which :func:`~dphe.flower.create_task` made, or a :class:`Simulation`.
    ``key_generator`` opens sums. By default, it is the node that has ``dphe-key-generator`` in its configuration.

    A round without a sum, for example because fewer than ``min_users`` nodes replied, leaves the model as it was. After
    ``patience`` such rounds in a row, the run ends with an exception.

    ``state`` is a folder. With it, a run that ended early goes on with the round after the last one that is complete.
    Without it, it is the path of the kit with ``.state`` at the end. **Never restore an older copy of it.**
    """

    def __init__(
        self,
        strategy: Strategy,
        kit: str | Path | Simulation,
        *,
        key_generator: SumOpener | None = None,
        state: str | Path | None = None,
        patience: int = 3,
        open_timeout: float = 3600.0,
        mean_only: bool = False,
    ) -> None:
        """Wrap a strategy."""
        _check_strategy(strategy, mean_only)
        if not isinstance(kit, str | Path | Simulation):
            raise TypeError(f"a kit is a path or a Simulation, not {type(kit).__name__}")
        if isinstance(kit, Simulation) and key_generator is not None:
            raise TypeError("a Simulation has a key generator of its own")
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise InvalidValue("patience is a number of rounds, at least 1", "range")
        self.strategy = strategy
        self._simulation = kit if isinstance(kit, Simulation) else None
        self._kit = None if isinstance(kit, Simulation) else Path(kit)
        self._opener = key_generator
        self._state = None if state is None else Path(state)
        self._patience, self._open_timeout = patience, open_timeout
        self._folder = ""
        self._settings: Settings | None = None
        self._aggregators: dict[Channel, Aggregator] = {}
        self._next: dict[Channel, int] = dict.fromkeys(CHANNELS, 1)
        self._included: dict[int, list[int]] = {}
        self._rounds: dict[Channel, _Round] = {}
        self._grid: _SecureGrid | None = None
        self._done = self._offset = self._failures = 0

    @property
    def settings(self) -> Settings:
        """What is public about the task. A simulation has it from the start of the run on."""
        if self._settings is None:
            raise Refused("the run has not started", "order")
        return self._settings

    def summary(self) -> None:
        """Log what is sealed, what is not, and the strategy."""
        if (
            self._settings is None
        ):  # a wrapper around this strategy starts the run, and has no model for it yet
            self.strategy.summary()
            return
        settings = self._settings
        task, cost = settings.train, settings.train.cost()
        _log.info("\t├──> dphe: task %s, at least %d users per sum", task.id[:16], task.min_users)
        _log.info("\t│\t├── An update: %d ciphertexts, %d bytes", cost.ciphertexts, cost.bytes)
        weights = "equal" if settings.max_examples is None else f"sealed, up to {settings.max_examples}"
        _log.info("\t│\t├── Weights: %s", weights)
        _log.info("\t│\t├── Sealed metrics: %s", ", ".join(name for name, _ in settings.metrics) or "none")
        _log.info("\t│\t└── Evaluation of nodes: %s", settings.evaluation)
        if settings.evaluation == "clear":
            _log.warning("dphe: nodes send evaluation metrics in the clear")
        self.strategy.summary()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run all rounds, or those that are left of a run that ended early."""
        self._prepare(initial_arrays)
        arrays = self._resume() or initial_arrays
        self._offset = self._done
        if self._done:
            _log.info("dphe: going on after round %d", self._done)
        evaluate = evaluate_fn
        if evaluate_fn is not None:
            offset, function = self._offset, evaluate_fn

            def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
                return function(number + offset, arrays)

        result = super().start(
            self._wrap(grid),
            arrays,
            max(0, num_rounds - self._offset),
            timeout,
            train_config,
            evaluate_config,
            evaluate,
        )
        if not result.arrays:
            result.arrays = arrays
        if self._offset:
            for rounds in (
                result.train_metrics_clientapp,
                result.evaluate_metrics_clientapp,
                result.evaluate_metrics_serverapp,
            ):
                shifted = {number + self._offset: metrics for number, metrics in rounds.items()}
                rounds.clear()
                rounds.update(shifted)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Add to the strategy's messages what nodes need to seal their replies."""
        self._prepare(arrays)
        secure = self._wrap(grid)
        messages = self.strategy.configure_train(server_round + self._offset, arrays, config, secure)
        return self._begin("train", list(messages), arrays)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Add to the strategy's messages what nodes need to seal their metrics."""
        if self.settings.evaluation == "off":
            return []
        secure = self._wrap(grid)
        messages = list(self.strategy.configure_evaluate(server_round + self._offset, arrays, config, secure))
        if self.settings.evaluation == "clear":
            for message in messages:
                message.content = _with_record(message, self._record("evaluate-clear"))
            return messages
        return self._begin("evaluate", messages, arrays)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add up the sealed updates, and give the strategy one reply with the mean."""
        number = server_round + self._offset
        current = self._rounds.pop("train", None)
        if current is None:
            return None, None
        summed = self._sum(current, replies)
        if summed is None:
            self._failures += 1
            if self._failures >= self._patience:
                raise RoundFailed(
                    f"{self._failures} rounds in a row have no sum; the log says why", "round_failed"
                )
            return None, None
        self._failures = 0
        weight, metrics, sums = summed
        layout = self.settings.layout
        mean = sums / self.settings.factor(weight)
        change = _unflatten(self.settings, mean)
        arrays = {}
        for name, before in current.arrays.items():
            after = before if name in layout.skipped else (before + change[name]).astype(before.dtype)
            arrays[name] = Array(np.asarray(after))
        content = RecordDict(
            {
                "arrays": ArrayRecord(arrays),
                "metrics": MetricRecord({self.settings.weight_key: weight * self.settings.unit, **metrics}),
            }
        )
        reply = Message(content, reply_to=current.message)
        aggregated, averages = self.strategy.aggregate_train(number, [reply])
        if aggregated is not None:
            aggregated = _restore_dtypes(aggregated, current.arrays, layout.skipped)
            self._done = number
            self._save(aggregated)
        return aggregated, averages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Add up the sealed metrics, and give the strategy one reply with the means."""
        number = server_round + self._offset
        if self.settings.evaluation == "clear":
            return self.strategy.aggregate_evaluate(number, replies)
        current = self._rounds.pop("evaluate", None)
        if current is None:
            return None
        summed = self._sum(current, replies)
        if summed is None:
            return None
        weight, metrics, _ = summed
        record = MetricRecord({self.settings.weight_key: weight * self.settings.unit, **metrics})
        reply = Message(RecordDict({"metrics": record}), reply_to=current.message)
        return self.strategy.aggregate_evaluate(number, [reply])

    def _prepare(self, arrays: ArrayRecord) -> None:
        """Read or make the kit, once."""
        if self._settings is not None:
            return
        model = _arrays(arrays)
        path = self._kit
        if self._simulation is not None:
            folder = self._simulate(self._simulation, model)
            self._folder, path = str(folder), folder / "aggregator.kit"
            self._opener = FileKeyGenerator(folder / "key-generator")
        assert path is not None
        settings, kits = read_aggregator_kit(path)
        settings.check_arrays(model)
        if isinstance(self._opener, FileKeyGenerator):
            check_same_task(self._opener.settings, settings, "the key generator")
        key = getattr(self.strategy, "weighted_by_key", settings.weight_key)
        if key != settings.weight_key:
            raise InvalidValue(
                f"the strategy weights by {key!r} and the task by {settings.weight_key!r}; make the task with "
                f"weight_key={key!r}",
                "weight",
            )
        for channel, data in kits.items():
            layout = settings.layout if channel == "train" else None
            self._aggregators[channel] = Aggregator(AggregatorKit.from_unprotected_bytes(data, layout))
        if self._state is None:
            self._state = path.with_name(f"{path.name}.state")
        if not self._state.exists():
            make_folder(self._state)
        self._settings = settings
        self._raise_minimum("min_train_nodes", settings.train.min_users)
        if settings.evaluation == "sealed" and getattr(self.strategy, "fraction_evaluate", 0.0) != 0.0:
            self._raise_minimum("min_evaluate_nodes", settings.train.min_users)

    def _simulate(self, simulation: Simulation, model: Mapping[str, Any]) -> Path:
        _log.warning("dphe: this is a simulation, which protects nothing: this machine has all keys")
        if simulation.folder is None:
            temporary = tempfile.mkdtemp(prefix="dphe-simulation-")
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
            folder = Path(temporary) / "task"
        else:
            folder = Path(simulation.folder).absolute()
        if not folder.exists():
            simulation.create(folder, model)
        return folder

    def _raise_minimum(self, name: str, users: int) -> None:
        found = getattr(self.strategy, name, None)
        if isinstance(found, int) and found < users and getattr(self.strategy, "fraction_train", 1.0) != 0.0:
            _log.info("dphe: %s is %d instead of %d, because a sum needs that many", name, users, found)
            setattr(self.strategy, name, users)

    def _wrap(self, grid: Grid) -> _SecureGrid:
        if isinstance(grid, _SecureGrid):
            return grid
        if self._grid is None or self._grid.inner is not grid:
            self._grid = _SecureGrid(grid, find_generator=self._opener is None)
        return self._grid

    def _record(self, kind: str, **fields: Any) -> ConfigRecord:
        return ConfigRecord(
            {
                "version": VERSION,
                "kind": kind,
                "settings": self.settings.digest,
                "simulation": self._folder,
                **fields,
            }
        )

    def _begin(self, channel: Channel, messages: list[Message], record: ArrayRecord) -> list[Message]:
        """Start a round of the task, of which nothing may leave before its number is stored."""
        self._rounds.pop(channel, None)
        if not messages:
            return []
        arrays = _arrays(record)
        self.settings.check_arrays(arrays)
        number = self._next[channel]
        self._next[channel] = number + 1
        self._save_numbers()
        context = content_context(self.settings, channel, messages[0].content)
        for message in messages[1:]:
            if message.content is not messages[0].content and context != content_context(
                self.settings, channel, message.content
            ):
                raise InvalidValue(
                    "the strategy sends nodes different arrays or configurations, and a sum is bound to one of them",
                    "model",
                )
        collecting = self._aggregators[channel].begin(number, context=context)
        self._rounds[channel] = _Round(
            channel, number, context, arrays, messages[0], len(messages), collecting
        )
        for message in messages:
            included = self._included.get(message.metadata.dst_node_id, [])
            fields = {"round": number, "context": context, "included": list(included)}
            message.content = _with_record(message, self._record(channel, **fields))
        return messages

    def _sum(
        self, current: _Round, replies: Iterable[Message]
    ) -> tuple[int, dict[str, float], NDArray[np.float64]] | None:
        """Return the sum of weights, the means of metrics and the weighted sums of values, or ``None``."""
        channel, number = current.channel, current.number
        nodes: dict[int, int] = {}
        failed = size = 0
        for reply in replies:
            node = reply.metadata.src_node_id
            try:
                if reply.has_error():
                    raise Refused(_reason(reply), "reply")
                update = _sealed_update(reply)
                nodes[current.collecting.accept(update)] = node
                size = max(size, len(update))
            except DpheError as error:
                failed += 1
                _log.warning("dphe: %s %d: node %d is left out: %s", channel, number, node, error)
            del reply
        began = time.monotonic()
        try:
            sealed = current.collecting.finish()
            opened = self._open(current, sealed)
            total = current.collecting.decode(current.collecting.publish(opened))
            dense = total.dense if channel == "train" else total.weights
            weight, metrics = self.settings.unpack(channel, dense)
            if weight == 0:
                raise RoundFailed("no node has any examples", "weight")
        except DpheError as error:
            self._aggregators[channel].close(number)
            what = "too few updates" if isinstance(error, TooFewUsers) else "no sum"
            _log.error("dphe: %s %d ends without a result, %s: %s", channel, number, what, error)
            return None
        if channel == "train":
            for user in total.users:
                rounds = [*self._included.get(nodes[user], []), number]
                self._included[nodes[user]] = rounds[-_REMEMBERED:]
        _log.info(
            "dphe: %s %d: %d of %d updates, %d bytes each, opened in %.2f s%s",
            channel,
            number,
            len(total.users),
            current.asked,
            size,
            time.monotonic() - began,
            f", {failed} refused" if failed else "",
        )
        return weight, metrics, total.weights

    def _open(self, current: _Round, sealed: bytes) -> bytes:
        if self._opener is not None:
            return self._opener.open(current.channel, sealed, current.context)
        if self._grid is None or self._grid.generator is None:
            raise RoundFailed(
                "no node is the key generator; start one with dphe-key-generator in its node config", "role"
            )
        record = self._record("open", channel=current.channel, context=current.context)
        content = RecordDict({RECORD: record, "arrays": ArrayRecord({"sum": wrap(sealed)})})
        # The type `train` reaches the mods of every ClientApp; `query` only those that have a function for it.
        message = Message(content, self._grid.generator, MessageType.TRAIN)
        for reply in self._grid.ask([message], self._open_timeout):
            if reply.has_error():
                raise RoundFailed(f"the key generator refused: {_reason(reply)}", "refused")
            return unwrap(next(iter(reply.content.array_records.values()), {}))
        raise RoundFailed("the key generator did not answer in time", "timeout")

    def _save_numbers(self) -> None:
        assert self._state is not None
        fields = {"next": self._next, "included": {str(k): v for k, v in self._included.items()}}
        write_file(self._state / "rounds.json", json.dumps(fields).encode())

    def _save(self, arrays: ArrayRecord) -> None:
        assert self._state is not None
        inner = {name: _portable(getattr(self.strategy, name, None)) for name in _INNER_STATE}
        header = {"done": self._done, "task": self.settings.digest, "strategy": type(self.strategy).__name__}
        kinds, parts = {}, [arrays_to_bytes(_arrays(arrays))]
        for name, value in inner.items():
            if value is not None:
                kinds[name] = value[0]
                parts.append(arrays_to_bytes(value[1]))
        header["inner"] = kinds
        count = len(parts).to_bytes(2, "little")
        data = join_parts(_CHECKPOINT, [count, json.dumps(header).encode(), *parts])
        write_file(self._state / "checkpoint", data)
        self._save_numbers()

    def _resume(self) -> ArrayRecord | None:
        """Read the rounds that were begun and the last model, if there are any."""
        assert self._state is not None
        numbers = self._state / "rounds.json"
        if numbers.exists():
            fields = json.loads(read_file(numbers))
            self._next = {channel: int(fields["next"][channel]) for channel in CHANNELS}
            self._included = {int(node): list(rounds) for node, rounds in fields["included"].items()}
        path = self._state / "checkpoint"
        if not path.exists():
            return None
        data = read_file(path)
        start = len(_CHECKPOINT) + 8
        count = int.from_bytes(data[start : start + 2], "little")
        _, head, arrays, *inner = split_parts(_CHECKPOINT, data, 2 + count, str(path))
        header = json.loads(head)
        if header["task"] != self.settings.digest:
            raise KeyMismatch(f"{self._state} belongs to another task", "task")
        if header["strategy"] != type(self.strategy).__name__:
            raise InvalidValue(f"{self._state} belongs to a run of {header['strategy']}", "strategy")
        for (name, kind), part in zip(header["inner"].items(), inner, strict=True):
            setattr(self.strategy, name, _native(kind, arrays_from_bytes(part)))
        self._done = int(header["done"])
        return _record_of(arrays_from_bytes(arrays))


@dataclass
class _Round:
    """A round of the task that nodes are asked for."""

    channel: Channel
    number: int
    context: bytes
    arrays: dict[str, NDArray[Any]]
    message: Message
    asked: int
    collecting: Collecting


class _SecureGrid(Grid):
    """A grid that yields replies as they arrive, and leaves out the node of the key generator."""

    def __init__(self, inner: Grid, *, find_generator: bool) -> None:
        self.inner = inner
        self.generator: int | None = None
        self._find = find_generator
        self._known: set[int] = set()

    def set_run(self, run: Any) -> None:
        self.inner.set_run(run)

    @property
    def run(self) -> Any:
        return self.inner.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self.inner.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        nodes = list(self.inner.get_node_ids())
        if self._find:
            self._meet([node for node in nodes if node not in self._known])
        return [node for node in nodes if node != self.generator]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self.inner.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self.inner.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.ask(list(messages), timeout)

    def ask(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        """Send messages and yield the replies, until all are there or the time is over."""
        waiting = {number for number in self.inner.push_messages(messages) if number} if messages else set()
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.02
        while waiting:
            replies = list(self.inner.pull_messages(waiting))
            while replies:
                reply = replies.pop()
                waiting.discard(reply.metadata.reply_to_message_id)
                pause = 0.02
                yield reply
            if not waiting or (end is not None and time.monotonic() >= end):
                return
            time.sleep(pause)
            pause = min(2 * pause, 1.0)

    def _meet(self, nodes: list[int]) -> None:
        """Ask new nodes for their roles."""
        content: dict[str, Any] = {"version": VERSION, "kind": "hello"}
        messages = [
            Message(RecordDict({RECORD: ConfigRecord(dict(content))}), node, MessageType.TRAIN)
            for node in nodes
        ]
        for reply in self.ask(messages, 60.0):
            node = reply.metadata.src_node_id
            self._known.add(node)
            if reply.has_error():
                _log.warning("dphe: node %d has no dphe_mod: %s", node, _reason(reply))
                continue
            record = reply.content.get(RECORD)
            if isinstance(record, ConfigRecord) and record.get("role") == "key-generator":
                if self.generator is not None and self.generator in set(self.inner.get_node_ids()):
                    raise Refused("two nodes say that they are the key generator", "role")
                _log.info("dphe: node %d is the key generator", node)
                self.generator = node


def _check_strategy(strategy: Strategy, mean_only: bool) -> None:
    if not isinstance(strategy, Strategy):
        raise TypeError(f"a strategy of flwr.serverapp is needed, not {type(strategy).__name__}")
    name = type(strategy).__name__
    known = {kind.aggregate_train for kind in _MEANS}
    if type(strategy).aggregate_train not in known and not mean_only:
        raise Refused(
            f"{name} is not known to work on the mean of all updates, and a server that adds up sealed updates has "
            "nothing else. Medians, trimmed means, Krum, clipping at the server and boosted trees need single updates. "
            "If the strategy only uses the mean, give mean_only=True",
            "strategy",
        )
    plain = FedAvg()
    for attribute in ("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"):
        function = getattr(strategy, attribute, None)
        if function not in (None, getattr(plain, attribute)) and not mean_only:
            raise Refused(
                f"{name} has a {attribute} of its own, which would get one reply with the means of metrics. If that is "
                "enough, give mean_only=True",
                "strategy",
            )


def _sealed_update(reply: Message) -> bytes:
    records = reply.content.array_records
    if len(records) != 1:
        raise Refused("the reply has no sealed update; its ClientApp needs mods=[dphe_mod]", "unsealed")
    try:
        return unwrap(next(iter(records.values())))
    except Refused:
        raise Refused(
            "the reply is not sealed, and is not read; its ClientApp needs mods=[dphe_mod]", "unsealed"
        ) from None


def _reason(reply: Message) -> str:
    """Return a node's text in a form that cannot forge lines of a log or control a terminal."""
    text = str(reply.error.reason)[:_LONGEST_REASON]
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _with_record(message: Message, record: ConfigRecord) -> RecordDict:
    """Return the records of a message with one more. Strategies share one content among their messages."""
    return RecordDict({**dict(message.content.items()), RECORD: record})


def _arrays(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    return {name: array.numpy() for name, array in record.items()}


def _record_of(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def _unflatten(settings: Settings, vector: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return named arrays in double precision, whatever the dtypes of the model."""
    layout, arrays = settings.layout, {}
    for i, name in enumerate(layout.names):
        part = vector[layout._offsets[i] : layout._offsets[i + 1]] * layout._scales[i]
        arrays[name] = part.reshape(layout._shapes[i])
    return arrays


def _restore_dtypes(
    record: ArrayRecord, before: Mapping[str, NDArray[Any]], skipped: Iterable[str]
) -> ArrayRecord:
    """Give arrays the dtypes of the model. Integers keep their values, of which no mean is taken."""
    kept = set(skipped)
    arrays = {}
    for name, array in record.items():
        value = before[name] if name in kept else array.numpy().astype(before[name].dtype, copy=False)
        arrays[name] = Array(np.asarray(value))
    return ArrayRecord(arrays)


def _portable(value: Any) -> tuple[str, dict[str, NDArray[Any]]] | None:
    if isinstance(value, ArrayRecord):
        return "record", _arrays(value)
    if isinstance(value, dict):
        return "dict", {str(name): np.asarray(array) for name, array in value.items()}
    if isinstance(value, list):
        return "list", {str(i): np.asarray(array) for i, array in enumerate(value)}
    return None


def _native(kind: str, arrays: dict[str, NDArray[Any]]) -> Any:
    if kind == "record":
        return _record_of(arrays)
    return arrays if kind == "dict" else list(arrays.values())


def arrays_to_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return arrays as bytes, in their order."""
    rows = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    parts = [np.ascontiguousarray(array).tobytes() for array in arrays.values()]
    head = json.dumps(rows).encode()
    return b"".join([len(head).to_bytes(8, "little"), head, *parts])


def arrays_from_bytes(data: bytes) -> dict[str, NDArray[Any]]:
    """Read what :func:`arrays_to_bytes` wrote."""
    start = 8 + int.from_bytes(data[:8], "little")
    arrays = {}
    for name, dtype, shape in json.loads(data[8:start]):
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(data, np.dtype(dtype), count, start).reshape(shape).copy()
        arrays[name] = cast(NDArray[Any], array)
        start += array.nbytes
    return arrays
