"""The node's side: a mod that seals what a ``ClientApp`` has learnt."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from numpy.typing import NDArray

from dphe.errors import DpheError, InvalidValue, Refused
from dphe.flower.files import locked, read_file, write_file
from dphe.flower.key_generator import FileKeyGenerator, SocketKeyGenerator, SumOpener
from dphe.flower.kits import (
    CHANNELS,
    Channel,
    Settings,
    join_parts,
    read_settings,
    split_parts,
)
from dphe.roles import User, UserKit
from dphe.vectors import Rotating

_log = logging.getLogger("flwr")

ClientAppCallable: TypeAlias = Callable[[Message, Context], Message]

#: The name of the record that a secure server adds to its messages, and the version of its fields.
RECORD = "dphe"
VERSION = 1
#: The marker of arrays that hold sealed updates or sums.
STYPE = "dphe.v1"
#: Flower's codes for errors of a ``ClientApp`` and of mods.
_RAISED, _PRECONDITION = 2, 6
_UPDATE = b"DPHEFLU1"
#: Which function of the ``ClientApp`` answers what a server asks a user for.
_TYPES = {
    "train": MessageType.TRAIN,
    "evaluate": MessageType.EVALUATE,
    "evaluate-clear": MessageType.EVALUATE,
}


def dphe_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Seal the replies of a ``ClientApp``. It is the first of the mods, so that it sees what the others made.

    The configuration of the node says who it is, in ``flower-supernode --node-config``:

    * ``dphe-kit="FOLDER"``: a user, with the folder ``user-N`` of :func:`~dphe.flower.create_task`. The folder must be
      writable, and no copy of it may be used.
    * ``dphe-key-generator="FOLDER"`` or ``"unix:SOCKET"``: the key generator, which does not train.
    * neither: the node takes part in simulations only, with kits on the machine of the server.

    Messages of a server without :class:`~dphe.flower.SecureStrategy` are refused, unless the configuration says
    ``dphe-policy="optional"``. With this, the server decides whether it gets plain arrays.
    """
    try:
        record = message.content.get(RECORD)
        if record is None:
            return _unsealed(message, context, call_next)
        if not isinstance(record, ConfigRecord):
            raise InvalidValue(f"the record {RECORD!r} is not a ConfigRecord", "encoding")
        del message.content[RECORD]  # other mods expect the records that the strategy made
        return _handle(dict(record), message, context, call_next)
    except DpheError as error:
        _log.error("dphe: %s", error)
        return _refusal(message, error)
    except Exception as error:  # its text could quote data, and Flower would send it
        _log.exception("dphe: the mod failed")
        reason = f"dphe failed with {type(error).__name__}; the log of the node says more"
        return Message(Error(code=_RAISED, reason=reason), reply_to=message)


def _handle(
    record: dict[str, Any], message: Message, context: Context, call_next: ClientAppCallable
) -> Message:
    if _field(record, "version", int) != VERSION:
        raise Refused("the server has another version of dphe.flower; install the same one", "version")
    kind = _field(record, "kind", str)
    generator = context.node_config.get("dphe-key-generator")
    if kind == "hello":
        return _hello(message, context, generator)
    if generator is not None:
        if kind != "open":
            raise Refused("this node is the key generator, which does not train", "role")
        return _open(record, message, str(generator))
    if kind == "open":
        raise Refused("this node is not the key generator", "role")
    if kind not in _TYPES:
        raise Refused(f"there is no message {kind!r}", "encoding")
    # Otherwise a server could ask for metrics of training as if they were those of an evaluation, in the clear.
    found = message.metadata.message_type
    if found.partition(".")[0] != _TYPES[kind]:
        raise Refused(f"a message of the type {found!r} asks for {kind!r}", "type")
    home = _home(record, context)
    with _Node.opened(home) as node:
        node.check(record)
        if kind == "train":
            return _train(node, record, message, context, call_next)
        if kind == "evaluate":
            return _evaluate(node, record, message, context, call_next)
        return _evaluate_clear(node, message, context, call_next)


def _unsealed(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    if (
        context.node_config.get("dphe-policy") == "optional"
        and "dphe-key-generator" not in context.node_config
    ):
        return call_next(message, context)
    raise Refused(
        "the server asks for plain results, and this node only sends sealed ones; use SecureStrategy in the ServerApp",
        "policy",
    )


def _home(record: Mapping[str, Any], context: Context) -> Path:
    """Return the folder of the node: the one that its configuration names, or one of a simulation."""
    configured = context.node_config.get("dphe-kit")
    if configured is not None:
        return Path(str(configured))
    folder = _field(record, "simulation", str)
    if not folder:
        raise Refused("this node has no kit; start it with --node-config 'dphe-kit=\"FOLDER\"'", "policy")
    partition = context.node_config.get("partition-id")
    if type(partition) is not int or partition < 0:
        raise Refused("a simulated node has no partition-id, which numbers its kit", "policy")
    home = Path(folder) / f"user-{partition + 1}"
    # A server on another machine cannot write here, and cannot make the node use kits that it knows.
    if not home.is_dir():
        raise Refused(
            f"there is no kit for partition {partition} on this machine; give Simulation more max_users, or give the "
            "node a kit of its own",
            "policy",
        )
    if home.stat().st_uid != os.getuid() or home.stat().st_mode & 0o077:
        raise Refused("the kits of the simulation belong to somebody else", "policy")
    return home


class _Node:
    """A user's folder: its kits, the last update of each kind, and what it has not sent yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: Settings = read_settings(folder)

    @classmethod
    @contextmanager
    def opened(cls, folder: Path) -> Iterator[_Node]:
        with locked(folder, wait=True):
            yield cls(folder)

    def check(self, record: Mapping[str, Any]) -> None:
        if _field(record, "settings", str) != self.settings.digest:
            raise Refused("the server has another task, or other settings, than the kit of this node", "task")

    def user(self, channel: Channel) -> User:
        data = read_file(self.folder / f"{channel}.kit")
        layout = self.settings.layout if channel == "train" else None
        return User(UserKit.from_unprotected_bytes(data, layout))

    def last(self, channel: Channel) -> tuple[int, bytes, bytes] | None:
        """Return the round, the context and the bytes of the last update."""
        path = self.folder / f"{channel}.update"
        if not path.exists():
            return None
        number, context, update = split_parts(_UPDATE, read_file(path), 3, str(path))
        return int.from_bytes(number, "little"), context, update

    def sealed_before(self, channel: Channel, number: int, context: bytes) -> bytes | None:
        """Return the update of a round that was sealed, or refuse a round that is over."""
        last = self.last(channel)
        if last is None or number > last[0]:
            return None
        if number < last[0]:
            raise Refused(f"round {number} is over; this node has sealed round {last[0]}", "stale")
        if context != last[1]:
            raise Refused(
                f"round {number} was sealed for another model or configuration, and is sealed only once",
                "conflict",
            )
        _log.info("dphe: round %d was sealed before; the same update is sent again", number)
        return last[2]

    def seal(
        self,
        channel: Channel,
        number: int,
        vector: Any,
        dense: NDArray[np.float64],
        context: bytes,
        chooser: Rotating | None = None,
    ) -> bytes:
        """Seal a round. What must not be forgotten is on the disk before the update is returned."""
        user = self.user(channel)
        last = self.last(channel)
        if last is not None:
            user.close(last[0])  # the process may have ended between the two files
        update = user.seal(number, vector, dense=dense, context=context)
        if chooser is not None:
            chooser.settle(number, included=True)
            for path in self.folder.glob("pending-*.npy"):
                path.unlink()
            chooser.save(self.folder / f"pending-{number}.npy")
        write_file(
            self.folder / f"{channel}.update",
            join_parts(_UPDATE, [number.to_bytes(8, "little"), context, update]),
        )
        user.close(number)
        write_file(self.folder / f"{channel}.kit", user.kit().to_unprotected_bytes())
        return update

    def chooser(self, included: list[int]) -> Rotating:
        """Return what was left out of the updates that are in sums, as the server says."""
        for path in self.folder.glob("pending-*.npy"):
            if int(path.stem.removeprefix("pending-")) in included:
                os.replace(path, self.folder / "residual.npy")
            else:
                path.unlink()
        chooser = Rotating(self.settings.train, feedback=self.settings.feedback)
        residual = self.folder / "residual.npy"
        if residual.exists():
            chooser.load(residual)
        return chooser


def _train(
    node: _Node, record: Mapping[str, Any], message: Message, context: Context, call_next: ClientAppCallable
) -> Message:
    settings = node.settings
    before = _received(settings, message)
    number, bound = _round(record), _bound(settings, "train", record, message)
    update = node.sealed_before("train", number, bound)
    if update is None:
        reply = _call(message, context, call_next)
        if reply.has_error():
            return reply
        after = _returned(reply)
        settings.check_arrays(after)
        metrics = _single(reply, MetricRecord, "metrics")
        weight = settings.weight(_examples(settings, metrics))
        _name_dropped(settings, "train", metrics)
        dense = settings.pack("train", weight, metrics)
        layout = settings.layout
        change: Any = layout.flatten(after).astype(np.float64) - layout.flatten(before)
        chooser = None
        if settings.train.capacity < settings.train.positions:
            chooser = node.chooser(_rounds(record))
            change = chooser.take(number, change).to_array()
        # The range is that of what was learnt. Cut after weighting, a node with few examples would have a larger one.
        outside = np.abs(change) >= settings.train.clip
        if outside.any():
            if settings.train.on_clip == "error":
                name = layout.where(int(np.argmax(outside)))
                raise InvalidValue(
                    f"array {name!r} changed by more than the range of the task; give it a scale, or use a larger clip",
                    "value",
                )
            _log.warning("dphe: %d values were cut to the range of the task", np.count_nonzero(outside))
            change = np.clip(change, -settings.train.clip, settings.train.clip)
        # As many users as weights: without the factor, the server would know how many examples each has.
        update = node.seal("train", number, change * settings.factor(weight), dense, bound, chooser)
    return _sealed_reply(message, settings, update)


def _evaluate(
    node: _Node, record: Mapping[str, Any], message: Message, context: Context, call_next: ClientAppCallable
) -> Message:
    settings = node.settings
    if settings.evaluation != "sealed":
        raise Refused(f"the kit of this node says evaluation={settings.evaluation!r}", "policy")
    _received(settings, message)
    number, bound = _round(record), _bound(settings, "evaluate", record, message)
    update = node.sealed_before("evaluate", number, bound)
    if update is None:
        reply = _call(message, context, call_next)
        if reply.has_error():
            return reply
        metrics = _single(reply, MetricRecord, "metrics")
        weight = settings.weight(_examples(settings, metrics))
        _name_dropped(settings, "evaluate", metrics)
        vector = settings.pack("evaluate", weight, metrics)
        update = node.seal("evaluate", number, vector, np.empty(0), bound)
    return _sealed_reply(message, settings, update)


def _evaluate_clear(node: _Node, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    if node.settings.evaluation != "clear":
        raise Refused(f"the kit of this node says evaluation={node.settings.evaluation!r}", "policy")
    reply = _call(message, context, call_next)
    if reply.has_error():
        return reply
    metrics = _single(reply, MetricRecord, "metrics")
    return Message(RecordDict({"metrics": MetricRecord(dict(metrics))}), reply_to=message)


def _hello(message: Message, context: Context, generator: Any) -> Message:
    role = "user" if generator is None else "key-generator"
    return Message(RecordDict({RECORD: ConfigRecord({"version": VERSION, "role": role})}), reply_to=message)


def _open(record: Mapping[str, Any], message: Message, where: str) -> Message:
    channel = _field(record, "channel", str)
    if channel not in CHANNELS:
        raise InvalidValue(f"there is no channel {channel!r}", "encoding")
    bound = _field(record, "context", bytes)
    if len(bound) != 32:
        raise InvalidValue("a context has 32 bytes", "length")
    opener: SumOpener
    if where.startswith("unix:"):
        opener = SocketKeyGenerator(where.removeprefix("unix:"))
    else:
        generator = FileKeyGenerator(where)
        if _field(record, "settings", str) != generator.settings.digest:
            raise Refused("the server has another task than this key generator", "task")
        opener = generator
    arrays = _single(message, ArrayRecord, "arrays")
    opened = opener.open(channel, unwrap(arrays), bound)
    content = RecordDict({"arrays": ArrayRecord({"sum": wrap(opened)})})
    return Message(content, reply_to=message)


def content_context(settings: Settings, channel: Channel, content: Mapping[str, Any]) -> bytes:
    """Return the hash of what a round asks nodes, without this module's record. Its sum is bound to it.

    An update that answers another model or another configuration does not fit into the sum. Otherwise a server could
    give one node a model of its own, or give all other nodes a step size of zero, to bring the update of that node out.
    """
    state = hashlib.sha256(
        b"dphe/flower/content/1\0" + channel.encode() + b"\0" + bytes.fromhex(settings.digest)
    )
    for name in sorted(content):
        record = content[name]
        if name == RECORD:
            continue
        state.update(_tagged(["record", name, type(record).__name__, len(record)]))
        if isinstance(record, ArrayRecord):
            for key, array in _arrays(record).items():
                data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
                state.update(_tagged([key, array.dtype.name, list(array.shape)]) + data.tobytes())
        else:
            for key in sorted(record):
                state.update(_tagged([key, _plain(record[key])]))
    return state.digest()


def _tagged(value: Any) -> bytes:
    data = json.dumps(value).encode()
    return len(data).to_bytes(8, "little") + data


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return ["list", *(_plain(part) for part in value)]
    return [type(value).__name__, value.hex() if isinstance(value, bytes | float) else value]


def wrap(data: bytes) -> Array:
    """Return bytes as an array of Flower, which sends long arrays in parts."""
    return Array(dtype="uint8", shape=(len(data),), stype=STYPE, data=data)


def unwrap(record: Any) -> bytes:
    """Return the bytes of a record that holds one such array."""
    arrays = list(record.values())
    if len(arrays) != 1 or arrays[0].stype != STYPE:
        raise Refused("the arrays are not sealed", "unsealed")
    return bytes(arrays[0].data)


def _received(settings: Settings, message: Message) -> dict[str, NDArray[Any]]:
    arrays = _arrays(_single(message, ArrayRecord, "arrays"))
    settings.check_arrays(arrays)
    return arrays


def _returned(reply: Message) -> dict[str, NDArray[Any]]:
    return _arrays(_single(reply, ArrayRecord, "arrays"))


def _arrays(record: Any) -> dict[str, NDArray[Any]]:
    try:
        return {name: array.numpy() for name, array in record.items()}
    except (TypeError, ValueError):
        raise InvalidValue("an array is not one of numpy", "encoding") from None


def _single(message: Message, kind: type, name: str) -> Any:
    records = [record for record in message.content.values() if isinstance(record, kind)]
    if len(records) != 1:
        raise InvalidValue(f"there are {len(records)} records of {name} instead of one", "encoding")
    return records[0]


def _bound(settings: Settings, channel: Channel, record: Mapping[str, Any], message: Message) -> bytes:
    """Return the context of what arrived, which must be the one that the server names."""
    bound = content_context(settings, channel, message.content)
    if bound != _field(record, "context", bytes):
        raise Refused("the model or its configuration is not what the server names for this round", "model")
    return bound


def _round(record: Mapping[str, Any]) -> int:
    number: int = _field(record, "round", int)
    if not 1 <= number < 1 << 62:
        raise InvalidValue("rounds are numbered from 1", "range")
    return number


def _rounds(record: Mapping[str, Any]) -> list[int]:
    return [number for number in _field(record, "included", list) if type(number) is int]


def _field(record: Mapping[str, Any], name: str, kind: type) -> Any:
    value = record.get(name)
    if type(value) is not kind:
        raise InvalidValue(f"the server's record has no field {name!r} of this type", "encoding")
    return value


def _examples(settings: Settings, metrics: Mapping[str, Any]) -> Any:
    if settings.max_examples is None:
        return 1
    if settings.weight_key not in metrics:
        raise InvalidValue(f"the reply has no metric {settings.weight_key!r}", "weight")
    return metrics[settings.weight_key]


def _name_dropped(settings: Settings, channel: Channel, metrics: Mapping[str, Any]) -> None:
    declared = {settings.weight_key, *(name for name, _ in settings.metrics_of(channel))}
    dropped = sorted(set(metrics) - declared)
    if dropped:
        _log.info("dphe: these metrics stay on the node: %s", ", ".join(dropped))


def _call(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Call the app. Texts of its errors stay here, because they can quote data."""
    try:
        reply = call_next(message, context)
    except Exception as error:
        _log.exception("dphe: the ClientApp failed")
        reason = f"the ClientApp failed with {type(error).__name__}; the log of the node says more"
        return Message(Error(code=_RAISED, reason=reason), reply_to=message)
    if reply.has_error():
        _log.error("dphe: the ClientApp replied with an error: %s", reply.error.reason)
        reason = "the ClientApp replied with an error; the log of the node says more"
        return Message(Error(code=reply.error.code, reason=reason), reply_to=message)
    return reply


def _sealed_reply(message: Message, settings: Settings, update: bytes) -> Message:
    content = RecordDict(
        {
            "arrays": ArrayRecord({"update": wrap(update)}),
            "metrics": MetricRecord({settings.weight_key: 1}),
        }
    )
    return Message(content, reply_to=message)


def _refusal(message: Message, error: DpheError) -> Message:
    return Message(Error(code=_PRECONDITION, reason=f"dphe: {error} ({error.code})"), reply_to=message)
