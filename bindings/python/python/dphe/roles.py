"""Secure sums of vectors: users, an aggregator and a key generator that exchange bytes.

A round goes like this. Each :class:`User` seals its vector. The :class:`Aggregator` adds up what users sealed, without
being able to read it. The :class:`KeyGenerator` opens the sum of a round once, and the aggregator publishes it. In the
profile ``full`` (the default), masks hide the sum from the key generator, and it can open the sum of exactly the users
that the sealed sum lists. Users check that it is a sum of as many users as the published sum names. Which users these
are is what the aggregator says.

>>> import numpy as np
>>> import dphe
>>> from dphe.paillier import DecryptionKey
>>> task = dphe.Task(1000, users=5, key_bits=2048)
>>> generator = dphe.KeyGenerator(task, DecryptionKey.generate(2048))
>>> users = [dphe.User(generator.enroll(number)) for number in (1, 2, 3)]
>>> aggregator = dphe.Aggregator(generator.aggregator_kit())
>>> collecting = aggregator.begin(1)
>>> for user in users:
...     sender = collecting.accept(user.seal(1, np.full(1000, 0.25)))
>>> opened = generator.open(collecting.finish())
>>> published = collecting.publish(opened)
>>> total = users[0].check(published)
>>> total.users, float(total.weights[0]), float(total.mean()[0])
((1, 2, 3), 0.75, 0.25)

These objects have no I/O, and what they exchange is neither signed nor encrypted for a receiver. What a user sealed
must reach the aggregator over a channel that nobody else reads, the key generator least of all.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NoReturn, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphe import _core
from dphe.errors import InvalidValue, Refused
from dphe.layout import Layout, as_array, rectangular
from dphe.paillier import DecryptionKey, EncryptionKey, _bytes, _check_threads, _small

__all__ = [
    "Aggregator",
    "AggregatorKit",
    "Collecting",
    "Cost",
    "KeyGenerator",
    "SparseVector",
    "Sum",
    "Task",
    "User",
    "UserKit",
]

Profile: TypeAlias = Literal["full", "sparse"]
_MOST = (1 << 32) - 1
_LAST_ROUND = (1 << 63) - 1


@dataclass(frozen=True)
class Cost:
    """What an update of one round takes."""

    #: The number of ciphertexts.
    ciphertexts: int
    #: The length of what a user sends.
    bytes: int
    #: The bits of a number with room for its sums.
    slot_bits: int
    #: The numbers that a ciphertext holds.
    slots: int


class SparseVector:
    """A vector given by the entries that are not zero. Its content is a user's secret, and is not printed.

    >>> from dphe import SparseVector
    >>> SparseVector(1000, [3, 70], [0.5, -1.25])
    SparseVector(1000, 2 entries)
    """

    __slots__ = ("_dimension", "_indices", "_values")

    def __init__(self, dimension: int, indices: ArrayLike, values: ArrayLike) -> None:
        """Make a vector of this length with these values at these indices, in any order."""
        self._dimension = _small(dimension, "dimension", _MOST)
        places, numbers = rectangular(indices, "the vector of indices"), as_array(values)
        if places.size == 0:
            places = places.astype(np.int64)
        if places.dtype.kind not in "iu":
            raise TypeError(f"indices are integers, not {places.dtype}")
        _check_numbers(numbers)
        if places.ndim != 1 or numbers.shape != places.shape:
            raise InvalidValue(
                f"indices have shape {places.shape} and values {numbers.shape}; use two vectors of one length",
                "dimension",
            )
        if places.size and (int(places.min()) < 0 or int(places.max()) >= self._dimension):
            raise InvalidValue(f"an index is not between 0 and {self._dimension - 1}", "dimension")
        order = np.argsort(places, kind="stable")
        self._indices = places[order].astype(np.uint32)
        self._values = np.ascontiguousarray(numbers[order], np.float64)
        repeated = np.flatnonzero(self._indices[1:] == self._indices[:-1])
        if repeated.size:
            raise InvalidValue(f"index {self._indices[repeated[0]]} is repeated", "value")

    @property
    def dimension(self) -> int:
        """The length, zeros included."""
        return self._dimension

    @property
    def indices(self) -> NDArray[np.uint32]:
        """The indices, ascending."""
        return self._indices

    @property
    def values(self) -> NDArray[np.float64]:
        """The values, in the order of the indices."""
        return self._values

    def to_array(self) -> NDArray[np.float64]:
        """Return the whole vector."""
        vector = np.zeros(self._dimension)
        vector[self._indices] = self._values
        return vector

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._indices)

    def __repr__(self) -> str:
        """Name the size and nothing else."""
        return f"SparseVector({self._dimension}, {len(self)} entries)"


class Task:
    """What is summed, and in which form. It is public, and all parties have the same.

    ``vector`` is the length of the vectors, or the :class:`Layout` of named arrays. ``users`` is the largest number of
    users. Values are rounded to ``scale_bits`` bits after the binary point, and lie between ``-clip`` and ``clip``, a
    power of two. Values outside are refused, or cut with ``on_clip="clip"``.

    In the profile ``full``, all users send the same public positions: all of them, or with ``share`` a part that
    changes from round to round. In ``sparse``, each user sends positions of its own, at most ``share`` of all, and
    permutations hide which. A position holds ``block`` consecutive values. ``dense`` values are sent in every round.

    ``bound=False`` leaves out the masks and the check that bind a sum to its users.

    >>> from dphe import Task
    >>> task = Task(62_006, users=5)
    >>> task.cost()
    Cost(ciphertexts=407, bytes=312697, slot_bits=20, slots=153)
    >>> Task(206_848, users=5, profile="sparse", block=101, capacity=205).cost().ciphertexts
    206
    """

    __slots__ = ("_layout", "_native")

    _native: _core.Task
    _layout: Layout | None

    def __init__(
        self,
        vector: int | Layout,
        *,
        users: int,
        profile: Profile = "full",
        share: float | None = None,
        capacity: int | None = None,
        block: int | None = None,
        shards: int = 1,
        dense: int = 0,
        scale_bits: int = 16,
        clip: float = 1.0,
        on_clip: Literal["error", "clip"] = "error",
        noise: Literal["secure", "fast"] = "secure",
        key_bits: int = 3072,
        min_users: int = 3,
        bound: bool = True,
        id: bytes | None = None,
    ) -> None:
        """Make a task. Without ``id``, it gets a random one."""
        self._layout = vector if isinstance(vector, Layout) else None
        dimension = _small(vector.size if isinstance(vector, Layout) else vector, "vector", _MOST)
        if profile not in ("full", "sparse"):
            raise InvalidValue(f"the profile is 'full' or 'sparse', not {profile!r}", "profile")
        if noise not in ("secure", "fast"):
            raise InvalidValue(f"the noise is 'secure' or 'fast', not {noise!r}", "policy")
        if not isinstance(bound, bool | np.bool_):
            raise TypeError(f"bound is a bool, not {type(bound).__name__}")
        if on_clip not in ("error", "clip"):
            raise InvalidValue(f"on_clip is 'error' or 'clip', not {on_clip!r}", "range")
        if block is None:
            # The public share is a shuffle of positions, which should take little time.
            block = max(1, math.ceil(dimension / 65536)) if profile == "full" else 1
        block = _small(block, "block", _MOST)
        positions = math.ceil(dimension / max(block, 1))
        if capacity is None:
            capacity = _capacity(share, profile, positions)
        elif share is not None:
            raise InvalidValue("give either share or capacity, not both", "range")
        if id is None:
            id = os.urandom(16)
        elif len(_bytes(id, "an id")) != 16:
            raise InvalidValue("an id has 16 bytes", "length")
        self._native = _core.Task(
            {
                "id": bytes(id),
                "profile": profile,
                "noise": noise,
                "bound": bool(bound),
                "key_bits": _small(key_bits, "key_bits", _MOST),
                "dimension": dimension,
                "dense": _small(dense, "dense", _MOST),
                "block": block,
                "capacity": _small(capacity, "capacity", _MOST),
                "shards": _small(shards, "shards", _MOST),
                "scale_bits": _small(scale_bits, "scale_bits", 255),
                "clip_exponent": _exponent(clip),
                "clip": on_clip == "clip",
                "min_users": _small(min_users, "min_users", _MOST),
                "max_users": _small(users, "users", _MOST),
            }
        )

    @classmethod
    def _of(cls, native: _core.Task, layout: Layout | None) -> Task:
        task = cls.__new__(cls)
        task._native, task._layout = native, layout
        if layout is not None and layout.size != native.dimension:
            raise InvalidValue(
                f"the layout has {layout.size} values and the task {native.dimension}", "dimension"
            )
        return task

    @classmethod
    def from_bytes(cls, data: bytes, layout: Layout | None = None) -> Task:
        """Read a task that :meth:`to_bytes` wrote. The layout is not part of the bytes."""
        return cls._of(_core.Task.from_bytes(_bytes(data, "a task")), layout)

    def to_bytes(self) -> bytes:
        """Return the task as bytes, without the layout."""
        return self._native.to_bytes()

    @property
    def id(self) -> str:
        """The name of the task, 32 hexadecimal digits."""
        return self._native.id.hex()

    @property
    def layout(self) -> Layout | None:
        """The layout of named arrays, if there is one."""
        return self._layout

    @property
    def dimension(self) -> int:
        """The length of the vectors."""
        return self._native.dimension

    @property
    def dense(self) -> int:
        """The number of dense values."""
        return self._native.dense

    @property
    def profile(self) -> Profile:
        """The profile: ``full`` or ``sparse``."""
        return cast(Profile, self._native.profile)

    @property
    def noise(self) -> str:
        """How ciphertexts get their noise."""
        return self._native.noise

    @property
    def bound(self) -> bool:
        """Whether masks or a check bind sums to their users."""
        return self._native.bound

    @property
    def key_bits(self) -> int:
        """The length of the encryption key."""
        return self._native.key_bits

    @property
    def block(self) -> int:
        """The number of values of a position."""
        return self._native.block

    @property
    def positions(self) -> int:
        """The number of positions."""
        return self._native.positions

    @property
    def capacity(self) -> int:
        """The number of positions that an update (in ``sparse``: a shard of it) carries."""
        return self._native.capacity

    @property
    def shards(self) -> int:
        """The number of shards of an update."""
        return self._native.shards

    @property
    def scale_bits(self) -> int:
        """The bits after the binary point."""
        return self._native.scale_bits

    @property
    def clip(self) -> float:
        """The largest magnitude of a value."""
        return float(2.0**self._native.clip_exponent)

    @property
    def on_clip(self) -> Literal["error", "clip"]:
        """What happens to values outside the range."""
        return "clip" if self._native.clip else "error"

    @property
    def min_users(self) -> int:
        """The smallest number of users whose sum is opened."""
        return self._native.min_users

    @property
    def max_users(self) -> int:
        """The largest number of users whose sums fit."""
        return self._native.max_users

    def cost(self, round: int = 1) -> Cost:
        """Return what an update of a round takes. Rounds of a public share may differ a little."""
        number = _round(round)
        return Cost(
            ciphertexts=self._native.ciphertexts(number),
            bytes=self._native.update_bytes(number),
            slot_bits=self._native.slot_bits,
            slots=self._native.slots,
        )

    def support(self, round: int) -> NDArray[np.int64] | None:
        """Return the indices that all users send in a round, ascending, or ``None`` if they are private.

        >>> from dphe import Task
        >>> task = Task(10, users=3, share=0.3, id=bytes(16))
        >>> sorted(int(i) for r in (1, 2, 3, 4) for i in task.support(r))
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        """
        if self.profile != "full":
            return None
        return np.frombuffer(self._native.support(_round(round)), np.int64)

    def _sends_all(self) -> bool:
        return self.profile == "full" and self.capacity == self.positions

    def __eq__(self, other: object) -> bool:
        """Return whether name, parameters and layout are equal."""
        return (
            isinstance(other, Task) and self.to_bytes() == other.to_bytes() and self._layout == other._layout
        )

    def __hash__(self) -> int:
        """Return a hash of the bytes."""
        return hash(self.to_bytes())

    def __repr__(self) -> str:
        """Name the size and the profile."""
        return f"Task({self.dimension}, users={self.max_users}, profile={self.profile!r}, id={self.id[:16]})"

    def __reduce__(self) -> tuple[Any, tuple[bytes, Layout | None]]:
        """Pickle the task, which is public, as bytes."""
        return (Task.from_bytes, (self.to_bytes(), self._layout))


class _Secret:
    """Refuses what would copy a secret by accident."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """Refuse: secrets become bytes only through functions that say so."""
        name = type(self).__name__
        article = "an" if name[0] == "A" else "a"
        raise TypeError(f"{article} {name} holds secrets and cannot be pickled or copied")


class UserKit(_Secret):
    """The keys of a user of a task. :meth:`KeyGenerator.enroll` makes it. Give it to that user only."""

    __slots__ = ("_layout", "_native")

    _native: _core.UserKit
    _layout: Layout | None

    def __init__(self) -> None:
        """Refuse: kits come from a key generator."""
        raise TypeError("use KeyGenerator.enroll or UserKit.from_unprotected_bytes")

    @classmethod
    def _of(cls, native: _core.UserKit, layout: Layout | None) -> UserKit:
        kit = cls.__new__(cls)
        kit._native, kit._layout = native, layout
        return kit

    @classmethod
    def from_unprotected_bytes(cls, data: bytes, layout: Layout | None = None) -> UserKit:
        """Read what :meth:`to_unprotected_bytes` wrote. The layout is not part of the bytes."""
        kit = cls._of(_core.UserKit.from_secret_bytes(_bytes(data, "a kit")), layout)
        _ = kit.task
        return kit

    def to_unprotected_bytes(self) -> bytes:
        """Return the keys in the clear, in the format of a user's key file of the program ``dphe``."""
        return self._native.to_secret_bytes()

    @property
    def task(self) -> Task:
        """The task."""
        return Task._of(self._native.task, self._layout)

    @property
    def user(self) -> int:
        """The number of the user."""
        return self._native.user

    def __repr__(self) -> str:
        """Name the user and the task."""
        return f"UserKit(user={self.user}, task={self.task.id[:16]})"


class AggregatorKit(_Secret):
    """The keys of the aggregator of a task. :meth:`KeyGenerator.aggregator_kit` makes it."""

    __slots__ = ("_layout", "_native")

    _native: _core.AggregatorKit
    _layout: Layout | None

    def __init__(self) -> None:
        """Refuse: kits come from a key generator."""
        raise TypeError("use KeyGenerator.aggregator_kit or AggregatorKit.from_unprotected_bytes")

    @classmethod
    def _of(cls, native: _core.AggregatorKit, layout: Layout | None) -> AggregatorKit:
        kit = cls.__new__(cls)
        kit._native, kit._layout = native, layout
        return kit

    @classmethod
    def from_unprotected_bytes(cls, data: bytes, layout: Layout | None = None) -> AggregatorKit:
        """Read what :meth:`to_unprotected_bytes` wrote. The layout is not part of the bytes."""
        kit = cls._of(_core.AggregatorKit.from_secret_bytes(_bytes(data, "a kit")), layout)
        _ = kit.task
        return kit

    def to_unprotected_bytes(self) -> bytes:
        """Return the keys in the clear, in the format of an aggregator's key file of the program ``dphe``."""
        return self._native.to_secret_bytes()

    @property
    def task(self) -> Task:
        """The task."""
        return Task._of(self._native.task, self._layout)

    def __repr__(self) -> str:
        """Name the task."""
        return f"AggregatorKit(task={self.task.id[:16]})"


class KeyGenerator(_Secret):
    """The party that creates the keys and opens sums. It opens one sum per round.

    Without a key, it generates one, which takes seconds. ``threads`` and ``progress`` are those of
    :meth:`DecryptionKey.generate`. Enrol all users before the first round.
    """

    __slots__ = ("_layout", "_native")

    _native: _core.KeyGenerator
    _layout: Layout | None

    def __init__(
        self,
        task: Task,
        key: DecryptionKey | None = None,
        *,
        threads: int | None = None,
        progress: Callable[[int, int], Any] | None = None,
    ) -> None:
        """Make the key generator of a task."""
        if not isinstance(task, Task):
            raise TypeError(f"a key generator needs a Task, not {type(task).__name__}")
        if key is None:
            noise = cast(Any, task.noise)
            key = DecryptionKey.generate(task.key_bits, noise=noise, threads=threads, progress=progress)
        self._native = _core.KeyGenerator(task._native, _native_key(key))
        self._layout = task.layout

    @classmethod
    def from_unprotected_bytes(
        cls, data: bytes, key: DecryptionKey, layout: Layout | None = None
    ) -> KeyGenerator:
        """Read seeds that :meth:`to_unprotected_bytes` wrote, for a key generator with this key."""
        generator = cls.__new__(cls)
        generator._native = _core.KeyGenerator.from_seeds(_bytes(data, "seeds"), _native_key(key))
        generator._layout = layout
        _ = generator.task
        return generator

    def to_unprotected_bytes(self) -> bytes:
        """Return the seeds in the clear, without the decryption key, which :meth:`DecryptionKey.seal` saves.

        Store them after every :meth:`open`, before its result leaves, and never restore an older copy: it opens a round
        again, and the difference of two sums of a round can be the vector of one user.

        The seeds that users share with the aggregator are not stored. So a restored key generator makes no kits for
        users who were enrolled before, and none for the aggregator.
        """
        return self._native.seeds()

    def enroll(self, user: int) -> UserKit:
        """Return the kit of the user with this number, from 1. A user who was enrolled before gets the same keys."""
        number = _small(user, "user", _MOST)
        return UserKit._of(self._native.enroll(number), self._layout)

    def aggregator_kit(self) -> AggregatorKit:
        """Return the kit of the aggregator, for the users enrolled so far."""
        return AggregatorKit._of(self._native.aggregator_kit(), self._layout)

    def open(self, sealed_sum: bytes, *, context: bytes | None = None, threads: int | None = None) -> bytes:
        """Open the sum of a round, for :meth:`Collecting.publish`. No other sum of the round can be opened.

        ``context`` is that of :meth:`User.seal`.

        The sum that was opened last gives the same result again, for a caller who lost it, as after Ctrl-C.
        A sum of other users than those that it lists gives random numbers (in ``full``) or an error (in ``sparse``).
        """
        _check_threads(threads)
        return self._native.open(_bytes(sealed_sum, "a sealed sum"), _context(context), threads)

    @property
    def task(self) -> Task:
        """The task."""
        return Task._of(self._native.task, self._layout)

    @property
    def encryption_key(self) -> EncryptionKey:
        """The key that users encrypt with."""
        return EncryptionKey._of(self._native.encryption_key)

    @property
    def users(self) -> tuple[int, ...]:
        """The users enrolled so far."""
        return tuple(self._native.users)

    @property
    def next_round(self) -> int:
        """The first round that can be opened."""
        return self._native.next_round

    def __repr__(self) -> str:
        """Name the task and the number of users."""
        return f"KeyGenerator(task={self.task.id[:16]}, {len(self.users)} users)"


class User(_Secret):
    """A user of a task. It seals one vector per round, and checks the published sums."""

    __slots__ = ("_clipped", "_native", "_number", "_task")

    def __init__(self, kit: UserKit) -> None:
        """Make the user with these keys."""
        if not isinstance(kit, UserKit):
            raise TypeError(f"a user needs a UserKit, not {type(kit).__name__}")
        self._native = _core.User(kit._native)
        self._task, self._number, self._clipped = kit.task, kit.user, 0

    @property
    def number(self) -> int:
        """The number of the user."""
        return self._number

    @property
    def task(self) -> Task:
        """The task."""
        return self._task

    @property
    def clipped(self) -> int:
        """How many values the last call of :meth:`seal` cut. Only the user knows."""
        return self._clipped

    @property
    def next_round(self) -> int:
        """The first round that can be sealed."""
        return self._native.next_round

    def seal(
        self,
        round: int,
        vector: ArrayLike | SparseVector | Mapping[str, Any],
        *,
        dense: ArrayLike = (),
        context: bytes | None = None,
        threads: int | None = None,
    ) -> bytes:
        """Seal the vector of a round, for :meth:`Collecting.accept`.

        ``context`` is 32 bytes on which the users of a sum have to agree, such as the hash of the model that they
        started from. The key generator opens a sum for one context, and updates that were sealed for another one make
        it random numbers (in ``full``) or an error (in ``sparse``). Without masks and a check (``bound=False``), the
        context has no effect.

        ``vector`` is an array, a :class:`SparseVector`, a sparse matrix of scipy with one row, or named arrays if the
        task has a layout. A round cannot be sealed twice, because two updates would reveal what one hides: keep the
        bytes to send them again. After an error or Ctrl-C, the round can be sealed again. Ctrl-C ends sealing soon in
        ``full``, and in ``sparse`` when the update is sealed. After a fork, the child cannot seal.

        Memory besides the vector is twice the length of the result and a little more.
        """
        _check_threads(threads)
        number, task = _round(round), self._task
        extra = as_array(dense)
        _check_numbers(extra)
        if extra.shape != (task.dense,):
            raise InvalidValue(
                f"the dense values have shape {extra.shape} instead of ({task.dense},)", "dimension"
            )
        extra = np.ascontiguousarray(extra, np.float64)
        round_id = (number, _context(context))
        values = self._read(vector)
        if isinstance(values, SparseVector):
            if values.dimension != task.dimension:
                raise InvalidValue(
                    f"the vector has {values.dimension} values instead of {task.dimension}", "dimension"
                )
            if task.profile == "full":
                part = _sparse_parts(values, number, task)
                sealed, self._clipped = self._native.seal_dense(round_id, part, extra, threads)
            else:
                entries = (values.indices, values.values)
                sealed, self._clipped = self._native.seal_sparse(round_id, entries, extra, threads)
            return sealed
        if values.shape != (task.dimension,):
            raise InvalidValue(
                f"the vector has shape {values.shape} instead of ({task.dimension},)", "dimension"
            )
        if task.profile == "full":
            part = _parts(values, number, task)
            sealed, self._clipped = self._native.seal_dense(round_id, part, extra, threads)
        else:
            indices = np.flatnonzero(values)
            entries = (indices.astype(np.uint32), np.ascontiguousarray(values[indices], np.float64))
            sealed, self._clipped = self._native.seal_sparse(round_id, entries, extra, threads)
        return sealed

    def check(self, published: bytes, *, context: bytes | None = None) -> Sum:
        """Check a published sum and return it. The seeds of its round and of all earlier ones are forgotten.

        In ``full``, this notices a sum that is not that of as many users as it names. Which users these are is what the
        aggregator says.

        In ``sparse``, and with ``bound=False``, nothing here tells whether the aggregator published what the key
        generator opened. So only rounds that the user has sealed and the one after them are accepted: end rounds in
        which the user does not take part with :meth:`close`.
        """
        total = Sum(self._native.check(_bytes(published, "a published sum"), _context(context)), self._task)
        self._native.advance(total.round + 1)
        return total

    def close(self, round: int) -> None:
        """End a round without a sum. Its seeds and those of all earlier rounds are forgotten."""
        self._native.advance(_round(round) + 1)

    def kit(self) -> UserKit:
        """Return the keys with the seeds that are left, for storing them.

        They do not say which rounds were sealed. With a user that was restored, do not seal a round again.
        """
        return UserKit._of(self._native.kit(), self._task.layout)

    def _read(self, vector: Any) -> NDArray[Any] | SparseVector:
        if isinstance(vector, SparseVector):
            return vector
        if isinstance(vector, Mapping):
            layout = self._task.layout
            if layout is None:
                raise TypeError("the task has no layout for named arrays; give it one, or a vector")
            flat = layout.flatten(vector)
            if self._task.on_clip == "error":
                outside = np.abs(flat) > self._task.clip
                if outside.any():
                    name = layout.where(int(np.argmax(outside)))
                    raise InvalidValue(
                        f"array {name!r} has a value outside the task's range; clip it, or give it a scale",
                        "value",
                    )
            return flat
        if hasattr(vector, "tocoo"):
            return _from_scipy(vector)
        values = as_array(vector)
        _check_numbers(values)
        return values

    def __repr__(self) -> str:
        """Name the user and the task."""
        return f"User({self.number}, task={self.task.id[:16]})"


class Aggregator(_Secret):
    """The party that adds up sealed updates. It reads neither updates nor, in ``sparse``, which positions they have."""

    __slots__ = ("_native", "_next", "_task")

    def __init__(self, kit: AggregatorKit) -> None:
        """Make the aggregator with these keys."""
        if not isinstance(kit, AggregatorKit):
            raise TypeError(f"an aggregator needs an AggregatorKit, not {type(kit).__name__}")
        self._native = _core.Aggregator(kit._native)
        self._task, self._next = kit.task, 1

    @property
    def task(self) -> Task:
        """The task."""
        return self._task

    @property
    def enrolled(self) -> int:
        """The number of users enrolled in the task."""
        return self._native.enrolled

    def begin(self, round: int, *, context: bytes | None = None) -> Collecting:
        """Start to collect the updates of a round. ``context`` is that of :meth:`User.seal`."""
        number = _round(round)
        if number < self._next:
            raise Refused(f"round {number} is over; the current round is {self._next}", "stale")
        return Collecting._of(self, self._native.begin(number, _context(context)))

    def close(self, round: int) -> None:
        """End a round. Its seeds and those of all earlier rounds are forgotten."""
        number = _round(round) + 1
        self._native.advance(number)
        self._next = max(self._next, number)

    def kit(self) -> AggregatorKit:
        """Return the keys with the seeds that are left, for storing them."""
        return AggregatorKit._of(self._native.kit(), self._task.layout)

    def __repr__(self) -> str:
        """Name the task and the number of users."""
        return f"Aggregator(task={self.task.id[:16]}, {self.enrolled} users)"


class Collecting(_Secret):
    """A round of the aggregator. It collects updates until :meth:`finish`, and then has the sum."""

    __slots__ = ("_aggregator", "_native")

    _aggregator: Aggregator
    _native: _core.Collecting

    def __init__(self) -> None:
        """Refuse: rounds begin at an aggregator."""
        raise TypeError("use Aggregator.begin")

    @classmethod
    def _of(cls, aggregator: Aggregator, native: _core.Collecting) -> Collecting:
        collecting = cls.__new__(cls)
        collecting._aggregator, collecting._native = aggregator, native
        return collecting

    @property
    def round(self) -> int:
        """The round."""
        return self._native.round

    @property
    def users(self) -> tuple[int, ...]:
        """The users whose updates are in the sum."""
        return tuple(self._native.users)

    def accept(self, sealed: bytes, *, threads: int | None = None) -> int:
        """Add a sealed update, and return the number of its user. A refused update changes nothing."""
        _check_threads(threads)
        return self._native.accept(_bytes(sealed, "a sealed update"), threads)

    def finish(self, *, threads: int | None = None) -> bytes:
        """Return the sealed sum, for :meth:`KeyGenerator.open`. No update is accepted any more.

        Another call returns the same bytes.
        With too few users, :class:`~dphe.errors.TooFewUsers` is raised, and the round goes on.
        """
        _check_threads(threads)
        return self._native.finish(threads)

    def publish(self, opened: bytes) -> bytes:
        """Return what users check, given what the key generator opened. The aggregator ends the round."""
        published = self._native.publish(_bytes(opened, "an opened sum"))
        self._aggregator.close(self.round)
        return published

    def decode(self, published: bytes) -> Sum:
        """Return a published sum of this round. Only users can check it."""
        return Sum(self._native.decode(_bytes(published, "a published sum")), self._aggregator.task)

    def __repr__(self) -> str:
        """Name the round and the number of users."""
        return f"Collecting(round={self.round}, {len(self.users)} users)"


class Sum:
    """The sum of a round, which :meth:`User.check` returns. ``users`` is what the aggregator says."""

    def __init__(self, native: _core.Sum, task: Task) -> None:
        """Wrap what a user has checked."""
        self._native, self._task = native, task

    @property
    def round(self) -> int:
        """The round."""
        return self._native.round

    @property
    def users(self) -> tuple[int, ...]:
        """The users whose updates are in the sum."""
        return tuple(self._native.users)

    @property
    def task(self) -> Task:
        """The task."""
        return self._task

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """The sums of all values of the vectors. What no user sent in this round is zero."""
        out = np.empty(self._task.dimension)
        self._native.weights(out)
        return out

    @cached_property
    def dense(self) -> NDArray[np.float64]:
        """The sums of the dense values."""
        out = np.empty(self._task.dense)
        self._native.dense(out)
        return out

    @cached_property
    def integers(self) -> NDArray[np.int64]:
        """The sums in fixed point: of all values, or of those in ``task.support(round)``."""
        out = np.empty(self._native.count, np.int64)
        self._native.integers(out)
        return out

    def mean(self) -> NDArray[np.float64]:
        """Return the average of the vectors: the sums, divided by the number of users."""
        return self.weights / len(self.users)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the average as named arrays, with the layout of the task."""
        if self._task.layout is None:
            raise TypeError("the task has no layout for named arrays")
        return self._task.layout.unflatten(self.mean())

    def __repr__(self) -> str:
        """Name the round and the number of users."""
        return f"Sum(round={self.round}, {len(self.users)} users)"


def _parts(values: NDArray[Any], number: int, task: Task) -> Callable[[int, int], NDArray[np.float64]]:
    """Return a function that converts parts of what is sent in a round."""
    if task._sends_all():
        return lambda start, stop: np.ascontiguousarray(values[start:stop], np.float64)
    support = cast(NDArray[np.int64], task.support(number))
    if np.count_nonzero(values) != np.count_nonzero(values[support]):
        outside = np.setdiff1d(np.flatnonzero(values), support)
        raise InvalidValue(_outside(int(outside[0]), number), "support")
    return lambda start, stop: np.ascontiguousarray(values[support[start:stop]], np.float64)


def _sparse_parts(vector: SparseVector, number: int, task: Task) -> Callable[[int, int], NDArray[np.float64]]:
    """Return a function that gives parts of what is sent in a round of a vector that is given by its entries."""
    occupied = vector.values != 0  # a NaN differs from zero, too
    places, values = vector.indices[occupied].astype(np.int64), vector.values[occupied]
    if not task._sends_all():
        indices, support = places, cast(NDArray[np.int64], task.support(number))
        places = np.searchsorted(support, indices)
        found = support[np.minimum(places, len(support) - 1)] == indices
        if not found.all():
            raise InvalidValue(_outside(int(indices[np.argmin(found)]), number), "support")

    def part(start: int, stop: int) -> NDArray[np.float64]:
        numbers = np.zeros(stop - start)
        first, last = np.searchsorted(places, [start, stop])
        numbers[places[first:last] - start] = values[first:last]
        return numbers

    return part


def _outside(index: int, number: int) -> str:
    return f"value {index} is not in the public support of round {number}, but differs from zero"


def _from_scipy(matrix: Any) -> SparseVector:
    shape: Sequence[int] = matrix.shape
    long = [length for length in shape if length != 1]
    if len(long) > 1:
        raise InvalidValue(f"the sparse matrix has shape {tuple(shape)}; use one row", "dimension")
    entries = matrix.tocoo(copy=True)
    entries.sum_duplicates()
    coordinates: Iterable[Any] = getattr(entries, "coords", None) or (entries.row, entries.col)
    indices = sum(np.asarray(axis, np.int64) for axis in coordinates)
    return SparseVector(long[0] if long else 1, cast(ArrayLike, indices), entries.data)


def _check_numbers(values: NDArray[Any]) -> None:
    if values.dtype.kind not in "iuf":
        raise TypeError(f"arrays of {values.dtype} are not summed; convert to float64")


def _capacity(share: float | None, profile: Profile, positions: int) -> int:
    if share is None:
        share = 1.0 if profile == "full" else 0.1
    if isinstance(share, bool) or not isinstance(share, int | float | np.floating | np.integer):
        raise TypeError(f"share is a number, not {type(share).__name__}")
    if not 0 < share <= 1:
        raise InvalidValue(f"share is {share}; use a number above 0 and up to 1", "range")
    # 0.07 of 100 is 7, although the product is a little more
    return max(1, math.ceil(share * positions - 1e-9))


def _exponent(clip: float) -> int:
    if isinstance(clip, bool) or not isinstance(clip, int | float | np.floating | np.integer):
        raise TypeError(f"clip is a number, not {type(clip).__name__}")
    mantissa, exponent = math.frexp(clip)
    if mantissa != 0.5 or not -100 <= exponent - 1 <= 100:
        raise InvalidValue(f"clip is {clip}; use a power of two, such as 0.25 or 8", "range")
    return exponent - 1


def _context(context: bytes | None) -> bytes:
    if context is None:
        return bytes(32)
    if len(_bytes(context, "a context")) != 32:
        raise InvalidValue("a context has 32 bytes", "length")
    return bytes(context)


def _native_key(key: DecryptionKey) -> _core.DecryptionKey:
    if not isinstance(key, DecryptionKey):
        raise TypeError(f"a key generator needs a DecryptionKey, not {type(key).__name__}")
    return key._native


def _round(round: int) -> int:
    number = _small(round, "round", _LAST_ROUND)
    if number < 1:
        raise InvalidValue("rounds are numbered from 1", "range")
    return number
