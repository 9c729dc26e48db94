"""What part of a long vector an update carries, with error feedback.

A chooser takes the difference that a user learnt in a round and returns the part of it to seal. What it leaves out
stays with the user, as its *residual*, and is added to the next difference. ``settle`` says whether the update is in
the sum of the round; if not, the difference of that round is dropped, and the residual stays as it was. The next
difference, learnt from the public model, contains what was dropped.

=========================  =========  ==========================================================
chooser                    name       what it sends
=========================  =========  ==========================================================
:class:`Rotating`          rotate     the public positions of the round, in a task with ``share``
:class:`LargestValues`     d-topk     the values of largest magnitude
:class:`LargestBlocks`     d-block    the blocks of largest Euclidean length
=========================  =========  ==========================================================

>>> import numpy as np
>>> from dphe import Task
>>> from dphe.vectors import LargestValues
>>> chooser = LargestValues(2, feedback=1.0)
>>> part = chooser.take(1, np.array([0.5, -0.25, 2.0]))
>>> part.indices, part.values
(array([0, 2], dtype=uint32), array([0.5, 2. ]))
>>> chooser.settle(1, included=True)
>>> chooser.take(2, np.array([0.0, -0.5, 0.25])).to_array()
array([ 0.  , -0.75,  0.25])
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphe import _core
from dphe.errors import InvalidValue, Refused, StorageError
from dphe.layout import as_array
from dphe.paillier import _small
from dphe.roles import SparseVector, Task, _check_numbers, _round

__all__ = ["Chooser", "LargestBlocks", "LargestValues", "Rotating", "chooser"]


class Chooser(ABC):
    """Chooses what an update carries. It holds the residual, which is as private as a user's data."""

    __slots__ = ("_feedback", "_pending", "_residual")

    def __init__(self, feedback: float) -> None:
        """Make a chooser that keeps this share of what it does not send."""
        if isinstance(feedback, bool) or not isinstance(feedback, int | float | np.floating):
            raise TypeError(f"feedback is a number, not {type(feedback).__name__}")
        if not 0 <= feedback <= 1:
            raise InvalidValue(
                f"feedback is {feedback}; use a number from 0 (forget) to 1 (keep all), normally 0.9", "range"
            )
        self._feedback = float(feedback)
        self._residual: NDArray[np.float64] | None = None
        self._pending: tuple[int, NDArray[np.float64]] | None = None

    @property
    def feedback(self) -> float:
        """The share of what is not sent that the next difference gets."""
        return self._feedback

    @property
    def residual(self) -> NDArray[np.float64] | None:
        """What the updates that are in sums have left out, or ``None`` before the first of them. It is secret."""
        return self._residual

    @abstractmethod
    def _indices(self, round: int, changes: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the indices to send, ascending."""

    def take(self, round: int, difference: ArrayLike) -> SparseVector:
        """Return the part of a difference to seal in this round. The residual waits for :meth:`settle`."""
        number = _round(round)
        values = as_array(difference)
        _check_numbers(values)
        if values.ndim != 1:
            raise InvalidValue(f"the difference has shape {values.shape}; use one dimension", "dimension")
        changes = np.array(values, np.float64)
        if not np.isfinite(changes).all():
            index = int(np.argmin(np.isfinite(changes)))
            raise InvalidValue(f"value {index} is not a finite number", "value")
        if self._residual is not None:
            if self._residual.shape != changes.shape:
                raise InvalidValue(
                    f"the difference has {len(changes)} values, and the residual {len(self._residual)}",
                    "dimension",
                )
            changes += self._residual
        indices = self._indices(number, changes)
        part = SparseVector(len(changes), indices, changes[indices])
        changes[indices] = 0.0
        # The next round learns part of it again, so keeping all would count it twice.
        changes *= self._feedback
        self._pending = (number, changes)
        return part

    def settle(self, round: int, included: bool) -> None:
        """End a round. Without it, and if the update is not in the sum, the residual stays as it was."""
        number = _round(round)
        if self._pending is None or self._pending[0] != number:
            if included:
                raise Refused(f"no part of round {number} was taken", "order")
            return
        if included:
            self._residual = self._pending[1]
        self._pending = None

    def reset(self) -> None:
        """Forget everything, for a model that starts over."""
        self._residual = self._pending = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the residual to a new file that only its owner can read."""
        residual = np.empty(0) if self._residual is None else self._residual
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    np.save(file, residual, allow_pickle=False)
            except BaseException:
                os.unlink(path)  # half a residual
                raise
        except OSError as error:
            raise StorageError(f"the residual cannot be written: {error}", "storage") from error

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read what :meth:`save` wrote."""
        try:
            with open(path, "rb") as file:
                residual = np.lib.format.read_array(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise StorageError(f"the residual cannot be read: {error}", "storage") from error
        if (
            not isinstance(residual, np.ndarray)
            or residual.dtype != np.float64
            or residual.ndim != 1
            or not np.isfinite(residual).all()
        ):
            raise InvalidValue("the file holds no residual", "storage")
        self._residual, self._pending = (residual if residual.size else None), None

    def __repr__(self) -> str:
        """Name the kind and nothing secret."""
        return f"{type(self).__name__}(feedback={self._feedback})"

    def __reduce__(self) -> NoReturn:
        """Refuse: a residual is secret."""
        raise TypeError(f"a {type(self).__name__} holds secrets and cannot be pickled or copied; use save")


class Rotating(Chooser):
    """Sends the public positions of the round, in a task of the profile ``full`` with a ``share``.

    >>> task = Task(6, users=3, share=0.5)
    >>> chooser = Rotating(task)
    >>> part = chooser.take(1, np.arange(1.0, 7.0))
    >>> bool((part.indices == task.support(1)).all())
    True
    """

    __slots__ = ("_task",)

    def __init__(self, task: Task, *, feedback: float = 0.9) -> None:
        """Make the chooser of a user of this task."""
        super().__init__(feedback)
        if not isinstance(task, Task):
            raise TypeError(f"a Rotating needs a Task, not {type(task).__name__}")
        if task.profile != "full":
            raise InvalidValue("the positions of the task are private; use LargestValues", "profile")
        self._task = task

    def _indices(self, round: int, changes: NDArray[np.float64]) -> NDArray[np.int64]:
        if len(changes) != self._task.dimension:
            raise InvalidValue(
                f"the difference has {len(changes)} values instead of {self._task.dimension}", "dimension"
            )
        support = self._task.support(round)
        if support is None:
            raise InvalidValue("the positions of the task are private", "profile")
        return support


class LargestValues(Chooser):
    """Sends the ``count`` values of largest magnitude. Ties go to the first."""

    __slots__ = ("_count",)

    def __init__(self, count: int, *, feedback: float = 0.9) -> None:
        """Make a chooser of this many values."""
        super().__init__(feedback)
        self._count = _positive(count, "count")

    def _indices(self, round: int, changes: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.frombuffer(_core.largest(changes, self._count), np.int64)


class LargestBlocks(Chooser):
    """Sends the ``count`` blocks of ``width`` consecutive values that have the largest Euclidean length.

    In a task with ``block=width``, a block is a position. Ties go to the first.
    """

    __slots__ = ("_count", "_width")

    def __init__(self, width: int, count: int, *, feedback: float = 0.9) -> None:
        """Make a chooser of this many blocks."""
        super().__init__(feedback)
        self._width, self._count = _positive(width, "width"), _positive(count, "count")

    def _indices(self, round: int, changes: NDArray[np.float64]) -> NDArray[np.int64]:
        blocks = np.frombuffer(_core.largest_blocks(changes, self._width, self._count), np.int64)
        indices = (blocks[:, None] * self._width + np.arange(self._width)).reshape(-1)
        return indices[indices < len(changes)]


def chooser(name: Literal["rotate", "d-topk", "d-block"], task: Task, *, feedback: float = 0.9) -> Chooser:
    """Return the chooser with this name that fills the updates of a task.

    >>> chooser("d-topk", Task(1000, users=3, profile="sparse", capacity=10))
    LargestValues(feedback=0.9)
    """
    if not isinstance(task, Task):
        raise TypeError(f"a chooser needs a Task, not {type(task).__name__}")
    positions = task.capacity * task.shards
    if name == "rotate":
        return Rotating(task, feedback=feedback)
    if name in ("d-block", "d-topk") and task.profile == "full" and task.capacity < task.positions:
        raise InvalidValue("the task sends public positions; use 'rotate'", "profile")
    if name == "d-block":
        return LargestBlocks(task.block, positions, feedback=feedback)
    if name == "d-topk":
        if task.profile == "sparse" and task.block != 1:
            raise InvalidValue("the positions of the task are blocks; use 'd-block'", "profile")
        return LargestValues(positions * task.block, feedback=feedback)
    raise InvalidValue(f"there is no chooser {name!r}; use 'rotate', 'd-topk' or 'd-block'", "name")


def _positive(value: Any, name: str) -> int:
    number = _small(value, name, 1 << 32)
    if number < 1:
        raise InvalidValue(f"{name} must be at least 1", "range")
    return number
