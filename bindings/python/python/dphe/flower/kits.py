"""What the parties of a Flower run agree on, and the files that they get."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dphe.errors import InvalidValue, KeyMismatch, StorageError
from dphe.flower.files import make_folder, read_file, write_file
from dphe.layout import Layout, as_array
from dphe.paillier import DecryptionKey, _small
from dphe.roles import KeyGenerator, Task
from dphe.vectors import Rotating

Channel: TypeAlias = Literal["train", "evaluate"]
Evaluation: TypeAlias = Literal["sealed", "clear", "off"]

CHANNELS: tuple[Channel, ...] = ("train", "evaluate")
#: Magnitudes of metrics are cut at this number unless the task says otherwise.
METRIC_BOUND = 64.0
#: Metrics and evaluations get this many bits after the binary point, relative to their bounds.
_EVALUATION_BITS = 24
_KIT = b"DPHEFLK1"


@dataclass(frozen=True)
class Settings:
    """What is public about a task. Every kit has a copy, so that a server cannot change it."""

    #: The task of the updates, with the layout of the model.
    train: Task
    #: The task of evaluation metrics, which has no layout.
    evaluate: Task
    #: What a node's number of examples is called in its metrics.
    weight_key: str
    #: The largest number of examples that counts, or ``None`` if all nodes weigh the same.
    max_examples: int | None
    #: The bits of a weight.
    weight_bits: int
    #: The names of the training metrics that are averaged under encryption, and the largest magnitude of each.
    metrics: tuple[tuple[str, float], ...]
    #: Whether evaluation metrics are sent sealed, in the clear, or not at all.
    evaluation: Evaluation
    #: The names of the evaluation metrics and the largest magnitude of each.
    evaluate_metrics: tuple[tuple[str, float], ...]
    #: The share of what is not sent that the next update gets, if the task has a ``share``.
    feedback: float

    @property
    def layout(self) -> Layout:
        """The names and shapes of the model's arrays."""
        return cast(Layout, self.train.layout)

    def task(self, channel: Channel) -> Task:
        """Return the task of training or of evaluation."""
        return self.train if channel == "train" else self.evaluate

    def metrics_of(self, channel: Channel) -> tuple[tuple[str, float], ...]:
        """Return the metrics of training or of evaluation."""
        return self.metrics if channel == "train" else self.evaluate_metrics

    @cached_property
    def digest(self) -> str:
        """A hash of everything here, 64 hexadecimal digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the settings as JSON. Equal settings have equal bytes."""
        fields = {
            "version": 1,
            "train": self.train.to_bytes().hex(),
            "layout": self.layout.to_bytes().decode(),
            "evaluate": self.evaluate.to_bytes().hex(),
            "weight_key": self.weight_key,
            "max_examples": self.max_examples,
            "weight_bits": self.weight_bits,
            "metrics": self.metrics,
            "evaluation": self.evaluation,
            "evaluate_metrics": self.evaluate_metrics,
            "feedback": self.feedback,
        }
        return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Settings:
        """Read what :meth:`to_bytes` wrote."""
        try:
            fields = json.loads(data)
            if fields["version"] != 1 or fields["evaluation"] not in ("sealed", "clear", "off"):
                raise ValueError("another version")
            layout = Layout.from_bytes(fields["layout"].encode())
            return cls(
                train=Task.from_bytes(bytes.fromhex(fields["train"]), layout),
                evaluate=Task.from_bytes(bytes.fromhex(fields["evaluate"])),
                weight_key=str(fields["weight_key"]),
                max_examples=None if fields["max_examples"] is None else int(fields["max_examples"]),
                weight_bits=int(fields["weight_bits"]),
                metrics=_bounds(dict(fields["metrics"])),
                evaluation=fields["evaluation"],
                evaluate_metrics=_bounds(dict(fields["evaluate_metrics"])),
                feedback=float(fields["feedback"]),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidValue(f"the bytes are not settings of a Flower task: {error}", "encoding") from None

    def check_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Refuse arrays whose names, shapes or dtypes are not those of the model."""
        layout = self.layout
        for name in arrays:
            if name not in layout.names and name not in layout.skipped:
                raise InvalidValue(f"array {name!r} is not part of the model", "model")
        for name in (*layout.names, *layout.skipped):
            if name not in arrays:
                raise InvalidValue(f"array {name!r} of the model is missing", "model")
        for name, shape, dtype in zip(layout.names, layout._shapes, layout._dtypes, strict=True):
            array = arrays[name]
            if array.shape != shape or array.dtype != dtype:
                raise InvalidValue(
                    f"array {name!r} has shape {array.shape} and dtype {array.dtype} instead of {shape} and {dtype}",
                    "model",
                )

    def weight(self, examples: float) -> int:
        """Return the weight of a node with this number of examples, an integer of at most ``weight_bits`` bits."""
        if self.max_examples is None:
            return 1
        if isinstance(examples, bool) or not isinstance(examples, int | float | np.integer | np.floating):
            raise InvalidValue(f"{self.weight_key!r} is not a number", "weight")
        if not (math.isfinite(examples) and examples >= 0):
            raise InvalidValue(f"{self.weight_key!r} is negative or not a finite number", "weight")
        if examples == 0:
            return 0
        return max(1, round(min(examples, self.max_examples) / self.unit))

    @property
    def unit(self) -> float:
        """The number of examples for which a weight counts one: 1 if ``weight_bits`` have room for all of them."""
        return 1.0 if self.max_examples is None else max(1.0, self.max_examples / (1 << self.weight_bits))

    def factor(self, weight: int) -> float:
        """Return what a node multiplies its values by, between 0 and 1."""
        return weight / (1 << self.weight_bits)

    def pack(self, channel: Channel, weight: int, metrics: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return a weight and metrics as values that are summed."""
        half = self.task(channel).clip / 2
        values = [half * self.factor(weight)]
        for name, bound in self.metrics_of(channel):
            value = metrics.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
                raise InvalidValue(f"the metric {name!r} is missing or not a number", "metric")
            if not math.isfinite(value):
                raise InvalidValue(f"the metric {name!r} is not a finite number", "metric")
            values.append(half * self.factor(weight) * min(max(float(value) / bound, -1.0), 1.0))
        return np.array(values)

    def unpack(self, channel: Channel, sums: NDArray[np.float64]) -> tuple[int, dict[str, float]]:
        """Return the sum of weights, and the weighted means of metrics, given sums of what :meth:`pack` returned."""
        half = self.task(channel).clip / 2
        total = round(float(sums[0]) / half * (1 << self.weight_bits))
        if total <= 0:
            return 0, {}
        names = [name for name, _ in self.metrics_of(channel)]
        bounds = [bound for _, bound in self.metrics_of(channel)]
        means = [
            float(value) / half / self.factor(total) * bound
            for value, bound in zip(sums[1:], bounds, strict=True)
        ]
        return total, dict(zip(names, means, strict=True))

    def max_sum_bytes(self, channel: Channel) -> int:
        """Return a bound of the length of a sealed sum."""
        task = self.task(channel)
        ciphertexts = task.capacity * task.block // task.cost().slots + task.dense + 8
        return ciphertexts * task.key_bits // 4 + 20 * task.max_users + task.positions // 8 + 4096


def create_task(
    folder: str | Path,
    model: Mapping[str, Any],
    *,
    users: int,
    max_examples: int | None,
    weight_bits: int | None = None,
    weight_key: str = "num-examples",
    metrics: Mapping[str, float] | Iterable[str] = (),
    evaluation: Evaluation = "off",
    evaluate_metrics: Mapping[str, float] | Iterable[str] = (),
    share: float = 1.0,
    feedback: float = 0.9,
    scale_bits: int = 16,
    clip: float = 1.0,
    on_clip: Literal["error", "clip"] = "error",
    scales: Mapping[str, float] | None = None,
    skip: Iterable[str] = (),
    noise: Literal["secure", "fast"] = "secure",
    key_bits: int = 3072,
    min_users: int = 3,
    key: DecryptionKey | None = None,
    passphrase: bytes | bytearray | None = None,
) -> Settings:
    """Make the key generator and the kits of all parties in a new folder, and return what is public.

    The party that runs this is the key generator. It keeps ``key-generator``, which holds the secret key (sealed if
    there is a passphrase), and gives ``user-1``, ``user-2``, ... to the nodes, one each, and ``aggregator.kit`` to the
    server. Afterwards it deletes them. Two nodes must not have the same kit.

    ``model`` has the arrays that the run starts from: only their names, shapes and dtypes matter. ``max_examples`` is
    the largest number of examples that a node counts with, and ``None`` gives all nodes the same weight. Weights are
    exact if ``weight_bits`` have room for them (8 bits unless said otherwise: up to 256 examples), and rounded if not.
    ``metrics`` and ``evaluate_metrics`` name what is averaged under encryption, with the largest magnitude of each. All
    other metrics stay on the nodes.

    >>> import tempfile
    >>> import numpy as np
    >>> from dphe.flower import create_task
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = {"weight": np.zeros((4, 3)), "bias": np.zeros(4)}
    ...     settings = create_task(f"{folder}/task", model, users=3, max_examples=200, key_bits=2048)
    >>> settings.layout.size, settings.weight_bits
    (16, 8)
    """
    root = Path(folder)
    arrays = {name: as_array(value, name) for name, value in model.items()}
    users = _small(users, "users", 1 << 20)
    if users < 1:
        raise InvalidValue("a task needs at least one user", "range")
    if max_examples is not None and _small(max_examples, "max_examples", 1 << 40) < 1:
        raise InvalidValue("max_examples must be at least 1, or None", "range")
    if evaluation not in ("sealed", "clear", "off"):
        raise InvalidValue(f"evaluation is 'sealed', 'clear' or 'off', not {evaluation!r}", "range")
    if evaluation != "sealed" and evaluate_metrics:
        raise InvalidValue("evaluate_metrics are for evaluation='sealed'", "range")
    if max_examples is None:
        bits = 0
    else:
        bits = 8 if weight_bits is None else _small(weight_bits, "weight_bits", 32)
        bits = min(bits, math.ceil(math.log2(max_examples + 1)))
    averaged, evaluated = _bounds(metrics), _bounds(evaluate_metrics)
    options: dict[str, Any] = {
        "users": users,
        "min_users": min_users,
        "noise": noise,
        "key_bits": key_bits,
    }
    train = Task(
        Layout.of(arrays, scales=scales, skip=skip),
        share=share,
        dense=1 + len(averaged),
        scale_bits=scale_bits + bits,
        clip=clip,
        on_clip=on_clip,
        **options,
    )
    if train.clip * 2.0**scale_bits < 4:
        raise InvalidValue("the task has fewer than two bits per value; use more scale_bits", "range")
    Rotating(train, feedback=feedback)  # nodes make it in the first round, which is too late for an error
    settings = Settings(
        train=train,
        evaluate=Task(1 + len(evaluated), scale_bits=_EVALUATION_BITS + bits, **options),
        weight_key=weight_key,
        max_examples=max_examples,
        weight_bits=bits,
        metrics=averaged,
        evaluation=evaluation,
        evaluate_metrics=evaluated,
        feedback=float(feedback),
    )
    if key is None:
        key = DecryptionKey.generate(key_bits, noise=noise)
    generators = {channel: KeyGenerator(settings.task(channel), key) for channel in CHANNELS}
    from dphe.flower.key_generator import key_file_of, write_key_generator

    key_file = key_file_of(key, passphrase)  # before there are files, because it refuses short passphrases
    make_folder(root)
    for number in range(1, users + 1):
        home = root / f"user-{number}"
        make_folder(home)
        for channel, generator in generators.items():
            kit = generator.enroll(number).to_unprotected_bytes()
            write_file(home / f"{channel}.kit", kit)
        write_file(home / "settings.json", settings.to_bytes())
    parts = [generators[channel].aggregator_kit().to_unprotected_bytes() for channel in CHANNELS]
    write_file(root / "aggregator.kit", join_parts(_KIT, [settings.to_bytes(), *parts]))
    write_key_generator(root / "key-generator", settings, generators, key_file)
    return settings


def read_settings(folder: Path) -> Settings:
    """Read the settings of a party that has a folder."""
    return Settings.from_bytes(read_file(folder / "settings.json"))


def read_aggregator_kit(path: Path) -> tuple[Settings, dict[Channel, bytes]]:
    """Read the settings and the secrets of the aggregator."""
    settings, *parts = split_parts(_KIT, read_file(path), 1 + len(CHANNELS), str(path))
    return Settings.from_bytes(settings), dict(zip(CHANNELS, parts, strict=True))


def join_parts(magic: bytes, parts: Iterable[bytes]) -> bytes:
    """Return byte strings as one."""
    return magic + b"".join(struct.pack("<Q", len(part)) + part for part in parts)


def split_parts(magic: bytes, data: bytes, count: int, name: str) -> list[bytes]:
    """Read what :func:`join_parts` wrote."""
    parts: list[bytes] = []
    start = len(magic)
    while data.startswith(magic) and len(parts) < count and start + 8 <= len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        if length > len(data) - start - 8:
            break
        parts.append(data[start + 8 : start + 8 + length])
        start += 8 + length
    if len(parts) != count or start != len(data):
        raise StorageError(f"{name} is not a file of this kind, or is damaged", "storage")
    return parts


def check_same_task(found: Settings, expected: Settings, what: str) -> None:
    """Refuse a party of another task."""
    if found.digest != expected.digest:
        raise KeyMismatch(f"{what} belongs to another task; use the kits of one call of create_task", "task")


def _bounds(metrics: Mapping[str, float] | Iterable[str]) -> tuple[tuple[str, float], ...]:
    if isinstance(metrics, str):
        raise TypeError("metrics are a list of names, or a mapping of names to bounds, not a string")
    pairs = metrics.items() if isinstance(metrics, Mapping) else [(name, METRIC_BOUND) for name in metrics]
    bounds = []
    for name, bound in pairs:
        if not isinstance(name, str) or isinstance(bound, bool) or not isinstance(bound, int | float):
            raise TypeError("metrics are a list of names, or a mapping of names to bounds")
        if not (math.isfinite(bound) and bound > 0):
            raise InvalidValue(f"the bound of the metric {name!r} is {bound}; use a positive number", "range")
        bounds.append((name, float(bound)))
    if len({name for name, _ in bounds}) != len(bounds):
        raise InvalidValue("a metric is named twice", "name")
    return tuple(sorted(bounds))
