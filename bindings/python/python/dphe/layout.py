"""Named arrays as one vector, and back."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphe.errors import InvalidValue

__all__ = ["Layout"]


class Layout:
    """The names, shapes and dtypes of arrays that are summed as one vector. All users of a task have the same.

    Arrays are in the order of their names, whatever the order of the mapping they come from. Nothing else compares the
    layouts of users, and sums of different ones are wrong: compare ``digest`` before the first round.

    Arrays of integers and booleans, such as counters, are not part of the vector. A scale is what the values of an
    array are divided by before they are summed: a task has one range for all values, and the layers of a network
    differ. Powers of two change nothing but the rounding.

    >>> import numpy as np
    >>> from dphe import Layout
    >>> tensors = {"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2), "steps": np.array(7)}
    >>> layout = Layout.of(tensors)
    >>> layout.size, layout.names, layout.skipped
    (8, ('bias', 'weight'), ('steps',))
    >>> vector = layout.flatten(tensors)
    >>> layout.unflatten(vector)["weight"].shape
    (2, 3)
    """

    __slots__ = ("_dtypes", "_names", "_offsets", "_scales", "_shapes", "_skipped")

    _names: tuple[str, ...]
    _shapes: tuple[tuple[int, ...], ...]
    _dtypes: tuple[np.dtype[Any], ...]
    _scales: tuple[float, ...]
    _offsets: tuple[int, ...]
    _skipped: tuple[str, ...]

    def __init__(self) -> None:
        """Refuse: a layout comes from arrays or from bytes."""
        raise TypeError("use Layout.of or Layout.from_bytes")

    @classmethod
    def _make(
        cls, entries: Iterable[tuple[str, tuple[int, ...], str, float]], skipped: Iterable[str]
    ) -> Layout:
        layout = cls.__new__(cls)
        rows = sorted(entries)  # by name: users may have inserted the arrays in different orders
        layout._names = tuple(name for name, _, _, _ in rows)
        layout._shapes = tuple(shape for _, shape, _, _ in rows)
        layout._dtypes = tuple(np.dtype(dtype) for _, _, dtype, _ in rows)
        layout._scales = tuple(scale for _, _, _, scale in rows)
        layout._offsets = (0, *accumulate(math.prod(shape) for shape in layout._shapes))
        layout._skipped = tuple(sorted(skipped))
        if layout.size == 0:
            raise InvalidValue("a layout needs at least one floating-point value", "dimension")
        return layout

    @classmethod
    def of(
        cls,
        tensors: Mapping[str, Any],
        *,
        scales: Mapping[str, float] | None = None,
        skip: Iterable[str] = (),
    ) -> Layout:
        """Return the layout of these arrays, without those whose names are in ``skip``.

        The values may be numpy arrays, torch tensors, or anything that numpy converts to an array of numbers.
        """
        if not isinstance(tensors, Mapping):
            raise TypeError(f"named arrays are a mapping, not {type(tensors).__name__}")
        given, skip = dict(scales or {}), set(skip)
        for name in (*given, *skip):
            if name not in tensors:
                raise InvalidValue(f"there is no array {name!r}", "name")
        entries, skipped = [], []
        for name, tensor in tensors.items():
            if not isinstance(name, str):
                raise TypeError(f"the names of arrays are strings, not {type(name).__name__}")
            array = as_array(tensor, name)
            if name in skip or array.dtype.kind in "iub":
                if name in given:
                    raise InvalidValue(f"array {name!r} is not summed, so it has no scale", "scale")
                skipped.append(name)
                continue
            entries.append((name, array.shape, array.dtype.name, _scale(given.get(name, 1.0), name)))
        return cls._make(entries, skipped)

    @property
    def size(self) -> int:
        """The length of the vector."""
        return self._offsets[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays in the vector, in its order."""
        return self._names

    @property
    def skipped(self) -> tuple[str, ...]:
        """The names of the arrays that are not in the vector."""
        return self._skipped

    @property
    def digest(self) -> str:
        """A hash by which users compare their layouts, 64 hexadecimal digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def where(self, index: int) -> str:
        """Return the name of the array that holds this value of the vector."""
        if not 0 <= index < self.size:
            raise InvalidValue(f"the vector has no value {index}", "dimension")
        return self._names[int(np.searchsorted(self._offsets, index, side="right")) - 1]

    def flatten(self, tensors: Mapping[str, Any]) -> NDArray[Any]:
        """Return the arrays as one vector, in single precision if that loses nothing. Values must be finite."""
        for name in tensors:
            if name not in self._names and name not in self._skipped:
                raise InvalidValue(f"array {name!r} is not part of the layout", "name")
        vector = np.empty(self.size, np.float32 if self._is_single() else np.float64)
        for i, name in enumerate(self._names):
            if name not in tensors:
                raise InvalidValue(f"array {name!r} is missing", "name")
            array = as_array(tensors[name], name)
            if array.dtype.kind != "f":
                raise TypeError(f"array {name!r} has dtype {array.dtype} instead of {self._dtypes[i]}")
            if array.shape != self._shapes[i]:
                raise InvalidValue(
                    f"array {name!r} has shape {array.shape} instead of {self._shapes[i]}", "dimension"
                )
            finite = np.isfinite(array)
            if not finite.all():
                index = int(np.argmin(finite))
                raise InvalidValue(f"array {name!r}: value {index} is not a finite number", "value")
            part = vector[self._offsets[i] : self._offsets[i + 1]]
            # Without `dtype`, numpy divides in the precision of the array.
            with np.errstate(over="ignore"):
                np.divide(array.reshape(-1), self._scales[i], out=part, dtype=part.dtype, casting="same_kind")
            if not np.isfinite(part).all():
                index = int(np.argmin(np.isfinite(part)))
                raise InvalidValue(
                    f"array {name!r}: value {index} divided by its scale is too large", "value"
                )
        return vector

    def unflatten(self, vector: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return a vector as arrays with the names, shapes and dtypes of the layout."""
        vector = np.asarray(vector)
        if vector.shape != (self.size,):
            raise InvalidValue(f"the vector has shape {vector.shape} instead of ({self.size},)", "dimension")
        arrays: dict[str, NDArray[Any]] = {}
        for i, name in enumerate(self._names):
            part = vector[self._offsets[i] : self._offsets[i + 1]]
            if self._scales[i] != 1.0:
                part = part * self._scales[i]
            arrays[name] = part.reshape(self._shapes[i]).astype(self._dtypes[i])
        return arrays

    def to_bytes(self) -> bytes:
        """Return the layout as JSON. Equal layouts have equal bytes."""
        rows = zip(self._names, self._shapes, self._dtypes, self._scales, strict=True)
        arrays = [[name, list(shape), dtype.name, scale] for name, shape, dtype, scale in rows]
        fields = {"arrays": arrays, "skipped": list(self._skipped), "version": 1}
        return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Layout:
        """Read what :meth:`to_bytes` wrote."""
        try:
            fields = json.loads(data)
            if fields["version"] != 1:
                raise ValueError("another version")
            entries = [_entry(*row) for row in fields["arrays"]]
            skipped = [str(name) for name in fields["skipped"]]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidValue(f"the bytes are not a layout: {error}", "encoding") from None
        if len({name for name, *_ in entries}) != len(entries):
            raise InvalidValue("the bytes are not a layout: a name is repeated", "encoding")
        return cls._make(entries, skipped)

    def _is_single(self) -> bool:
        return all(dtype.itemsize <= 4 for dtype in self._dtypes) and all(s == 1.0 for s in self._scales)

    def __eq__(self, other: object) -> bool:
        """Return whether names, shapes, dtypes and scales are equal."""
        return isinstance(other, Layout) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        """Return a hash of the bytes."""
        return hash(self.to_bytes())

    def __repr__(self) -> str:
        """Name the number of arrays and the length."""
        return f"Layout({len(self._names)} arrays, {self.size} values, digest={self.digest[:16]})"

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        """Pickle the layout, which is public, as bytes."""
        return (Layout.from_bytes, (self.to_bytes(),))


def as_array(value: Any, name: str | None = None) -> NDArray[Any]:
    """Return real numbers as an array, without a copy if that is possible."""
    if hasattr(value, "detach"):  # a torch tensor that may require gradients or be on a device
        value = value.detach().cpu()
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        value = np.from_dlpack(value)
    what = "the vector" if name is None else f"array {name!r}"
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array; fill the masked values first")
    array = rectangular(value, what)
    if array.dtype.kind not in "iufb" or array.dtype.itemsize > 8:
        raise TypeError(f"{what} has dtype {array.dtype}; convert it to float64")
    return aligned(array)


def rectangular(value: Any, what: str) -> NDArray[Any]:
    """Return what numpy makes of a value. Lists of different lengths are refused."""
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InvalidValue(f"{what} has rows of different lengths", "dimension") from error


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or a copy if its numbers are not where the processor wants them, as in parts of a buffer."""
    return array if array.flags.aligned else array.copy()


def _scale(scale: float, name: str) -> float:
    if isinstance(scale, bool) or not isinstance(scale, int | float | np.floating):
        raise TypeError(f"the scale of {name!r} is a number, not {type(scale).__name__}")
    if not (math.isfinite(scale) and scale > 0):
        raise InvalidValue(f"the scale of {name!r} is {scale}; use a positive number", "scale")
    return float(scale)


def _entry(name: str, shape: list[int], dtype: str, scale: float) -> tuple[str, tuple[int, ...], str, float]:
    if not isinstance(name, str) or dtype not in ("float16", "float32", "float64"):
        raise ValueError("an array has no name or another dtype")
    if not all(type(length) is int and 0 <= length <= 1 << 30 for length in shape):
        raise ValueError("a shape is invalid")
    return (name, tuple(shape), dtype, _scale(scale, name))
