"""Fast Paillier encryption of numpy arrays.

Everyone who has the public :class:`EncryptionKey` can encrypt arrays and compute sums and multiples of the ciphertexts.
Only the :class:`DecryptionKey` decrypts. An array keeps its shape, and has one public number of fractional bits for
all its values, so that ciphertexts reveal nothing about magnitudes.

>>> import numpy as np
>>> from dphe.paillier import DecryptionKey
>>> secret = DecryptionKey.generate(2048)
>>> key = secret.encryption_key
>>> total = key.encrypt(np.array([0.5, 2.25]), scale_bits=16) * -3 + 1
>>> secret.decrypt(total)
array([-0.5 , -5.75])

Calls on arrays release the global interpreter lock and use all cores. ``threads`` limits them. Ctrl-C ends a call
within a fraction of a second.

Python cannot wipe its own integers, arrays and ``bytes``. What this module hands out as such stays in memory until
Python reuses it.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, SupportsIndex, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphe import _core
from dphe.errors import InvalidValue, KeyMismatch
from dphe.layout import aligned, rectangular

__all__ = ["DecryptionKey", "EncryptedArray", "EncryptionKey", "Noise", "Packing", "Pool"]

Noise: TypeAlias = Literal["secure", "fast", "textbook"]

_Index: TypeAlias = Any
_MAGIC = b"dphe-array\n\x01"
_UNPROTECTED_MAGIC = b"dphe-unprotected-secret-key\n\x01"
# More than fits into memory. An empty array may have long dimensions, too.
_MOST_ELEMENTS = 1 << 40
_NO_SCALE = 0xFFFF
_SHORTEST_PASSPHRASE = 12
_INT64_MIN = np.iinfo(np.int64).min
_NOISES: tuple[Noise, ...] = ("secure", "fast", "textbook")


class EncryptionKey:
    """A public key. It can be copied, compared, pickled and sent to anybody.

    >>> secret = DecryptionKey.generate(2048)
    >>> secret.encryption_key.bits
    2048
    """

    __slots__ = ("_n", "_native")

    _native: _core.EncryptionKey
    _n: int

    def __init__(self) -> None:
        """Refuse: keys come from constructors with names."""
        raise TypeError("use EncryptionKey.from_modulus, EncryptionKey.from_bytes or DecryptionKey.generate")

    @classmethod
    def _of(cls, core: _core.EncryptionKey) -> EncryptionKey:
        key = cls.__new__(cls)
        key._native = core
        key._n = int.from_bytes(core.modulus(), "big")
        return key

    @classmethod
    def from_modulus(cls, n: int, *, noise: Noise = "textbook") -> EncryptionKey:
        """Return the key with this modulus of 2048, 3072 or 4096 bits, after checks of the modulus.

        The noise ``"textbook"`` suits every key. The noises ``"secure"`` and ``"fast"`` are many times faster, but are
        secure only for products of two safe primes, which nobody can verify: use them for keys whose maker you trust.
        """
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"a modulus is an int, not {type(n).__name__}")
        if n <= 0:
            raise InvalidValue("the modulus must be positive", "key_modulus")
        return cls._of(_core.EncryptionKey.from_modulus(n.to_bytes((n.bit_length() + 7) // 8, "big"), noise))

    @classmethod
    def from_bytes(cls, data: bytes) -> EncryptionKey:
        """Read a key that :meth:`to_bytes` or the program ``dphe key`` wrote, and check its modulus."""
        return cls._of(_core.EncryptionKey.from_bytes(_bytes(data, "a key")))

    def to_bytes(self) -> bytes:
        """Return the key as bytes, in the format of the program ``dphe key``."""
        return self._native.to_bytes()

    @property
    def n(self) -> int:
        """The modulus."""
        return self._n

    @property
    def bits(self) -> int:
        """The length of the modulus."""
        return self._native.bits

    @property
    def id(self) -> str:
        """The identifier of the key, 64 hexadecimal digits."""
        return self._native.id.hex()

    @property
    def noise(self) -> Noise:
        """How ciphertexts get their noise."""
        return cast(Noise, self._native.noise)

    @property
    def backend(self) -> str:
        """The instructions that compute with this key: ``ifma``, ``avx2`` or ``portable``."""
        return self._native.backend

    def encrypt(
        self,
        values: ArrayLike,
        *,
        scale_bits: int | None = None,
        packing: Packing | None = None,
        pool: Pool | None = None,
        threads: int | None = None,
    ) -> EncryptedArray:
        """Encrypt an array of integers, or of fractions with ``scale_bits`` bits after the binary point.

        ``packing`` puts many values into a ciphertext. ``pool`` takes noise that was made ahead of time.

        >>> key = DecryptionKey.generate(2048).encryption_key
        >>> key.encrypt([[1, 2, 3], [4, 5, 6]]).shape
        (2, 3)
        """
        _check_threads(threads)
        numbers, shape = _numbers(values, scale_bits, self._n)
        pool_core = None if pool is None else pool._native
        if packing is None:
            core = self._native.encrypt(numbers, pool_core, threads)
        else:
            packing._check_key(self)
            core = self._native.encrypt_packed(numbers, packing._native, pool_core, threads)
        return EncryptedArray._of(self, core, shape, scale_bits, packing, 1)

    def packing(self, value_bits: int, terms: int) -> Packing:
        """Return a way to pack values of ``value_bits`` bits (with the sign), of which ``terms`` are added up."""
        return Packing(self, value_bits, terms)

    def pool(self) -> Pool:
        """Return an empty pool of noise for this key."""
        return Pool(self)

    def sum(self, arrays: Iterable[EncryptedArray | bytes], *, threads: int | None = None) -> EncryptedArray:
        """Return the sum of arrays of one shape, which are read one after the other.

        >>> secret = DecryptionKey.generate(2048)
        >>> key = secret.encryption_key
        >>> secret.decrypt(key.sum(key.encrypt([i, 1]) for i in range(4)))
        array([6, 4])
        """
        total: EncryptedArray | None = None
        for array in arrays:
            if not isinstance(array, EncryptedArray):
                array = EncryptedArray.from_bytes(array, self, threads=threads)
            if array.key != self:
                raise KeyMismatch("the operands belong to different keys", "key_id")
            if total is not None and array.shape != total.shape:
                raise InvalidValue(
                    f"the arrays have shapes {total.shape} and {array.shape}; use one shape", "length"
                )
            total = array if total is None else total.add(array, threads=threads)
        if total is None:
            raise InvalidValue("a sum needs at least one array", "length")
        return total

    def __eq__(self, other: object) -> bool:
        """Return whether both keys have the same modulus and noise."""
        return isinstance(other, EncryptionKey) and self._native.id == other._native.id

    def __hash__(self) -> int:
        """Return a hash of the identifier."""
        return hash(self._native.id)

    def __repr__(self) -> str:
        """Name the key by its identifier."""
        return f"EncryptionKey({self.bits} bits, noise={self.noise!r}, id={self.id[:16]})"

    def __reduce__(self) -> tuple[Callable[[bytes], EncryptionKey], tuple[bytes]]:
        """Pickle the key as bytes."""
        return (EncryptionKey.from_bytes, (self.to_bytes(),))


class Packing:
    """How many values share a ciphertext, and how many packed arrays may be added up.

    >>> key = DecryptionKey.generate(2048).encryption_key
    >>> packing = key.packing(value_bits=16, terms=100)
    >>> packing.slots, packing.slot_bits
    (88, 23)
    """

    __slots__ = ("_key", "_native", "_terms", "_value_bits")

    def __init__(self, key: EncryptionKey, value_bits: int, terms: int) -> None:
        """Make the packing of a key. :meth:`EncryptionKey.packing` does the same."""
        _check_public(key)
        self._key = key
        self._value_bits = _small(value_bits, "value_bits", 64)
        self._terms = _small(terms, "terms", (1 << 63) - 1)
        self._native = _core.Layout(key._native, self._value_bits, self._terms)

    @property
    def value_bits(self) -> int:
        """The bits of one value, with its sign."""
        return self._value_bits

    @property
    def terms(self) -> int:
        """How many values may be added up in a slot."""
        return self._terms

    @property
    def slots(self) -> int:
        """How many values a ciphertext holds."""
        return self._native.slots

    @property
    def slot_bits(self) -> int:
        """The bits of one value and of its sums."""
        return self._native.slot_bits

    def _check_key(self, key: EncryptionKey) -> None:
        if key != self._key:
            raise KeyMismatch("the packing belongs to another key", "key_id")

    def __eq__(self, other: object) -> bool:
        """Return whether both pack alike."""
        return isinstance(other, Packing) and self._identity() == other._identity()

    def __hash__(self) -> int:
        """Return a hash of key, bits and terms."""
        return hash(self._identity())

    def _identity(self) -> tuple[str, int, int]:
        return (self._key.id, self._value_bits, self._terms)

    def __repr__(self) -> str:
        """Name bits, terms and slots."""
        return f"Packing(value_bits={self.value_bits}, terms={self.terms}, slots={self.slots})"

    def __reduce__(self) -> tuple[type[Packing], tuple[EncryptionKey, int, int]]:
        """Pickle the packing with its public key."""
        return (Packing, (self._key, self._value_bits, self._terms))


class Pool:
    """Noise that is made ahead of time, so that an encryption costs little. It is used once and cannot be saved.

    A pool belongs to the process that filled it. After a fork, the child's pool is empty, because noise that is used
    twice would reveal differences of values.

    >>> key = DecryptionKey.generate(2048).encryption_key
    >>> pool = key.pool()
    >>> pool.refill(10)
    >>> array = key.encrypt([1, 2, 3], pool=pool)
    >>> len(pool)
    7
    """

    __slots__ = ("_key", "_native")

    def __init__(self, key: EncryptionKey) -> None:
        """Make an empty pool. :meth:`EncryptionKey.pool` does the same."""
        _check_public(key)
        self._key = key
        self._native = _core.Pool(key._native)

    def refill(self, count: int, *, threads: int | None = None) -> None:
        """Add noise for ``count`` ciphertexts."""
        _check_threads(threads)
        self._native.refill(_small(count, "count", 1 << 40), threads)

    def clear(self) -> None:
        """Throw all noise away."""
        self._native.clear()

    @property
    def key(self) -> EncryptionKey:
        """The key that the noise is for."""
        return self._key

    def __len__(self) -> int:
        """Return for how many ciphertexts there is noise."""
        return len(self._native)

    def __repr__(self) -> str:
        """Name the key and the size."""
        return f"Pool({len(self)} noises, id={self._key.id[:16]})"

    def __reduce__(self) -> NoReturn:
        """Refuse: noise that is used twice reveals differences of values."""
        raise TypeError("a pool cannot be pickled or copied, because its noise must be used only once")


class DecryptionKey:
    """A secret key. It prints nothing secret, and cannot be pickled or copied.

    It leaves memory through :meth:`seal`, which encrypts it under a passphrase, or through
    :meth:`to_unprotected_bytes`, which does not.

    >>> secret = DecryptionKey.generate(2048)
    >>> sealed = secret.seal(b"a long passphrase")
    >>> DecryptionKey.open(sealed, b"a long passphrase").encryption_key == secret.encryption_key
    True
    """

    __slots__ = ("_encryption_key", "_native")

    _native: _core.DecryptionKey
    _encryption_key: EncryptionKey

    def __init__(self) -> None:
        """Refuse: keys come from constructors with names."""
        raise TypeError(
            "use DecryptionKey.generate, DecryptionKey.open or DecryptionKey.from_unprotected_bytes"
        )

    @classmethod
    def _of(cls, core: _core.DecryptionKey) -> DecryptionKey:
        key = cls.__new__(cls)
        key._native = core
        key._encryption_key = EncryptionKey._of(core.encryption_key)
        return key

    @classmethod
    def generate(
        cls,
        bits: int = 3072,
        *,
        noise: Noise = "secure",
        threads: int | None = None,
        progress: Callable[[int, int], Any] | None = None,
    ) -> DecryptionKey:
        """Generate a key of 2048, 3072 or 4096 bits from two safe primes, which takes seconds to minutes.

        ``progress`` is called about every 50 ms with how many intervals have been searched, and how many a search takes
        on average. An exception that it raises ends the search.
        """
        _check_threads(threads)
        return cls._of(_core.DecryptionKey.generate(_small(bits, "bits", 1 << 20), noise, threads, progress))

    def seal(self, passphrase: bytes | bytearray) -> bytes:
        """Return the key, encrypted under a passphrase, in the format of the program ``dphe key``.

        A passphrase has at least 12 bytes, because shorter ones are soon found by trying all. One in a ``bytearray`` is
        overwritten with zeros.
        """
        with _Passphrase(passphrase):
            if len(passphrase) < _SHORTEST_PASSPHRASE:
                raise InvalidValue(
                    f"the passphrase is shorter than {_SHORTEST_PASSPHRASE} bytes; use several words",
                    "passphrase",
                )
            return self._native.seal(passphrase)

    @classmethod
    def open(cls, data: bytes, passphrase: bytes | bytearray) -> DecryptionKey:
        """Read a key that :meth:`seal` or the program ``dphe key`` wrote.

        A passphrase in a ``bytearray`` is overwritten with zeros.
        """
        with _Passphrase(passphrase):
            return cls._of(_core.DecryptionKey.open(_bytes(data, "a key"), passphrase))

    def to_unprotected_bytes(self) -> bytes:
        """Return the secret key in the clear. Everyone who reads these bytes can decrypt everything."""
        p, q = self._native.factors()
        return _UNPROTECTED_MAGIC + bytes([_NOISES.index(self._encryption_key.noise)]) + p + q

    @classmethod
    def from_unprotected_bytes(cls, data: bytes) -> DecryptionKey:
        """Read a key that :meth:`to_unprotected_bytes` wrote."""
        data = _bytes(data, "a key")
        start = len(_UNPROTECTED_MAGIC)
        factors = data[start + 1 :]
        if (
            data[:start] != _UNPROTECTED_MAGIC
            or not factors
            or len(factors) % 2
            or data[start] >= len(_NOISES)
        ):
            raise InvalidValue("the bytes are not an unprotected secret key", "key_format")
        half = len(factors) // 2
        core = _core.DecryptionKey.from_factors(factors[:half], factors[half:], _NOISES[data[start]])
        return cls._of(core)

    @property
    def encryption_key(self) -> EncryptionKey:
        """The public key."""
        return self._encryption_key

    def decrypt(self, array: EncryptedArray, *, threads: int | None = None) -> NDArray[Any]:
        """Decrypt an array: to int64, or to float64 if it has fractional bits.

        Integers that do not fit into 64 bits are refused. :meth:`decrypt_integers` returns them.
        """
        self._check(array, threads)
        if array._packing is not None:
            integers = np.empty(array.shape, np.int64)
            self._native.decrypt_packed(array._native, integers.reshape(-1), array._packing._native, threads)
            return integers if array.scale_bits is None else np.ldexp(integers, -array.scale_bits)
        if array.scale_bits is not None:
            fractions = np.empty(array.shape, np.float64)
            self._native.decrypt_fractions(array._native, fractions.reshape(-1), array.scale_bits, threads)
            return fractions
        integers = np.empty(array.shape, np.int64)
        self._native.decrypt_integers(array._native, integers.reshape(-1), threads)
        return integers

    def decrypt_integers(self, array: EncryptedArray, *, threads: int | None = None) -> NDArray[np.object_]:
        """Decrypt an array to Python's integers of any size. Fractional bits are not removed."""
        self._check(array, threads)
        if array._packing is not None:
            flat = np.empty(array.size, np.int64)
            self._native.decrypt_packed(array._native, flat, array._packing._native, threads)
            return flat.astype(object).reshape(array.shape)
        residues = self._native.decrypt_residues(array._native, threads)
        n = self._encryption_key.n
        integers = np.empty(array.size, object)
        for i, residue in enumerate(_split(residues, n)):
            integers[i] = residue - n if residue > n // 2 else residue
        return integers.reshape(array.shape)

    def _check(self, array: EncryptedArray, threads: int | None) -> None:
        _check_threads(threads)
        if not isinstance(array, EncryptedArray):
            raise TypeError(f"decryption needs an EncryptedArray, not {type(array).__name__}")
        if array.key != self._encryption_key:
            raise KeyMismatch("the array was encrypted with another key", "key_id")

    def __repr__(self) -> str:
        """Name the key by its identifier only."""
        return f"DecryptionKey(<redacted>, id={self._encryption_key.id[:16]})"

    def __reduce__(self) -> NoReturn:
        """Refuse: a pickle would hold the key in the clear."""
        raise TypeError("a secret key cannot be pickled or copied; use `seal`, which needs a passphrase")


@dataclass(frozen=True, slots=True)
class _Form:
    """What arrays must have in common to be added."""

    scale_bits: int | None
    packing: Packing | None


class EncryptedArray:
    """An array of ciphertexts with a shape.

    Arrays of one key, one number of fractional bits and one packing can be added and subtracted, with each other and
    with public numbers, and multiplied by public integers. The noise of a sum is that of its terms; :meth:`rerandomize`
    adds fresh noise. Times depend on the numbers that an array is multiplied by.

    >>> secret = DecryptionKey.generate(2048)
    >>> array = secret.encryption_key.encrypt([[1, 2], [3, 4]])
    >>> secret.decrypt((array * 10 - 1)[1])
    array([29, 39])
    >>> secret.decrypt(array.sum(axis=0))
    array([4, 6])
    """

    __slots__ = ("_form", "_key", "_native", "_shape", "_terms")
    __array_ufunc__ = None  # numpy leaves `array + encrypted` to this class

    _native: _core.Ciphertexts
    _form: _Form
    _key: EncryptionKey
    _shape: tuple[int, ...]
    _terms: int

    def __init__(self) -> None:
        """Refuse: arrays come from keys."""
        raise TypeError("use EncryptionKey.encrypt, EncryptedArray.from_bytes or EncryptedArray.from_ints")

    @classmethod
    def _of(
        cls,
        key: EncryptionKey,
        core: _core.Ciphertexts,
        shape: tuple[int, ...],
        scale_bits: int | None,
        packing: Packing | None,
        terms: int,
    ) -> EncryptedArray:
        array = cls.__new__(cls)
        array._key, array._native, array._shape = key, core, shape
        array._form, array._terms = _Form(scale_bits, packing), terms
        return array

    def _with(self, core: _core.Ciphertexts, shape: tuple[int, ...], terms: int = 1) -> EncryptedArray:
        return EncryptedArray._of(self._key, core, shape, self.scale_bits, self._packing, terms)

    @property
    def key(self) -> EncryptionKey:
        """The key that the array was encrypted with."""
        return self._key

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of values."""
        return math.prod(self._shape)

    @property
    def scale_bits(self) -> int | None:
        """The bits after the binary point, or None for integers."""
        return self._form.scale_bits

    @property
    def packing(self) -> Packing | None:
        """How values share ciphertexts, or None if each has its own."""
        return self._form.packing

    _packing = packing

    @property
    def ciphertexts(self) -> int:
        """The number of ciphertexts."""
        return len(self._native)

    @property
    def nbytes(self) -> int:
        """The bytes of the ciphertexts."""
        return len(self._native) * (self._key.bits // 4)

    def __len__(self) -> int:
        """Return the length of the first dimension."""
        if not self._shape:
            raise TypeError("an array without dimensions has no length")
        return self._shape[0]

    def __repr__(self) -> str:
        """Describe the array without its content."""
        parts = [f"shape={self._shape}"]
        if self.scale_bits is not None:
            parts.append(f"scale_bits={self.scale_bits}")
        if self._packing is not None:
            parts.append(f"packing={self._packing!r}")
        return f"EncryptedArray({', '.join(parts)}, id={self._key.id[:16]})"

    def add(self, other: EncryptedArray | ArrayLike, *, threads: int | None = None) -> EncryptedArray:
        """Return the sums with an array of the same shape, or with public numbers. ``+`` does the same."""
        _check_threads(threads)
        if isinstance(other, EncryptedArray):
            self._check_operand(other)
            left, right = _broadcast(self, other)
            terms = self._more_terms(other._terms)
            return self._with(left._native.add(right._native, threads), left._shape, terms)
        return self._add_numbers(other, threads)

    def subtract(self, other: EncryptedArray | ArrayLike, *, threads: int | None = None) -> EncryptedArray:
        """Return the differences with an array of the same shape, or with public numbers. ``-`` does the same."""
        if isinstance(other, EncryptedArray):
            self._check_operand(other)
            return self.add(other.negate(threads=threads), threads=threads)
        return self._add_numbers(_negated(other, self.scale_bits), threads)

    def multiply(self, factors: ArrayLike, *, threads: int | None = None) -> EncryptedArray:
        """Return the products with public integers. ``*`` does the same. The product with 0 has no noise."""
        _check_threads(threads)
        integers = _factors(factors)
        if self._packing is not None:
            if integers.size != 1 or (integers.ndim > 0 and integers.shape != self._shape):
                raise InvalidValue("a packed array can be multiplied by one integer only", "packing")
            largest = abs(int(integers.reshape(-1)[0]))
            terms = self._check_terms(self._terms * max(largest, 1))
            return self._with(self._product(integers, len(self._native), threads), self._shape, terms)
        array, shape = self, _common_shape(self._shape, integers.shape)
        if shape != self._shape:
            array = self._broadcast_to(shape)
        integers = np.broadcast_to(integers, shape)
        return array._with(array._product(integers, array.size, threads), shape)

    def negate(self, *, threads: int | None = None) -> EncryptedArray:
        """Return the values with the other sign. ``-`` before an array does the same."""
        _check_threads(threads)
        return self._with(self._native.negate(threads), self._shape, self._terms)

    def rerandomize(self, *, threads: int | None = None) -> EncryptedArray:
        """Return ciphertexts of the same values that nobody can link to these."""
        _check_threads(threads)
        return self._with(self._native.rerandomize(threads), self._shape, self._terms)

    def sum(self, axis: int | None = None, *, threads: int | None = None) -> EncryptedArray:
        """Return the sum of all values, or the sums along an axis."""
        _check_threads(threads)
        self._check_unpacked("summed up within itself; add whole arrays instead")
        if axis is None:
            return self._with(self._native.sum_rows(1, self.size, threads), ())
        axis = operator.index(axis)
        if not -self.ndim <= axis < self.ndim:
            raise InvalidValue(
                f"axis {axis} is out of range for an array of {self.ndim} dimensions", "length"
            )
        last = np.moveaxis(self._positions(), axis, -1)
        shape = last.shape[:-1]
        flat = self._native.take(np.ascontiguousarray(last).reshape(-1))
        return self._with(flat.sum_rows(math.prod(shape), last.shape[-1], threads), shape)

    def reshape(self, *shape: SupportsIndex | tuple[SupportsIndex, ...]) -> EncryptedArray:
        """Return the same ciphertexts in another shape of the same size."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        try:
            new = self._positions().reshape(cast("tuple[int, ...]", wanted)).shape
        except ValueError as error:
            raise InvalidValue(str(error), "length") from None
        return self._with(self._native, new, self._terms)

    def ravel(self) -> EncryptedArray:
        """Return the same ciphertexts in one dimension."""
        return self._with(self._native, (self.size,), self._terms)

    def __getitem__(self, index: _Index) -> EncryptedArray:
        """Return the values that numpy would return for this index."""
        self._check_unpacked("indexed")
        chosen = np.asarray(self._positions()[index])
        return self._with(self._native.take(np.ascontiguousarray(chosen).reshape(-1)), chosen.shape)

    def __add__(self, other: EncryptedArray | ArrayLike) -> EncryptedArray:
        """Return :meth:`add`."""
        return self.add(other)

    __radd__ = __add__

    def __sub__(self, other: EncryptedArray | ArrayLike) -> EncryptedArray:
        """Return :meth:`subtract`."""
        return self.subtract(other)

    def __rsub__(self, other: ArrayLike) -> EncryptedArray:
        """Return the differences of public numbers and this array."""
        return self.negate().add(other)

    def __mul__(self, factors: ArrayLike) -> EncryptedArray:
        """Return :meth:`multiply`."""
        return self.multiply(factors)

    __rmul__ = __mul__

    def __neg__(self) -> EncryptedArray:
        """Return :meth:`negate`."""
        return self.negate()

    def __iter__(self) -> NoReturn:
        """Refuse: a loop over ciphertexts is slow and seldom meant."""
        raise TypeError("an encrypted array cannot be iterated over; use its methods, or index it")

    def __bool__(self) -> NoReturn:
        """Refuse: nobody knows the values."""
        raise TypeError("the truth of an encrypted array is not known")

    def to_bytes(self, *, threads: int | None = None) -> bytes:
        """Return the array as bytes: a header with key, shape, fractional bits and packing, and the ciphertexts."""
        _check_threads(threads)
        scale = _NO_SCALE if self.scale_bits is None else self.scale_bits
        value_bits, terms = (
            (0, 0) if self._packing is None else (self._packing.value_bits, self._packing.terms)
        )
        header = struct.pack(">HBQQB", scale, value_bits, terms, self._terms, self.ndim)
        shape = struct.pack(f">{self.ndim}Q", *self._shape)
        return b"".join([_MAGIC, self._key._native.id, header, shape, self._native.to_wire(threads)])

    @classmethod
    def from_bytes(cls, data: bytes, key: EncryptionKey, *, threads: int | None = None) -> EncryptedArray:
        """Read an array that :meth:`to_bytes` wrote, and check that its ciphertexts belong to the key."""
        _check_threads(threads)
        _check_public(key)
        data = _bytes(data, "an array")
        fixed = len(_MAGIC) + 32
        if len(data) < fixed + 20 or data[: len(_MAGIC)] != _MAGIC:
            raise InvalidValue("the bytes are not an encrypted array", "encoding")
        if data[len(_MAGIC) : fixed] != key._native.id:
            raise KeyMismatch("the array was encrypted with another key", "key_id")
        scale, value_bits, terms, used, ndim = struct.unpack_from(">HBQQB", data, fixed)
        start = fixed + 20 + 8 * ndim
        if len(data) < start or ndim > 32:
            raise InvalidValue("the header of the encrypted array is truncated", "encoding")
        shape: tuple[int, ...] = struct.unpack_from(f">{ndim}Q", data, fixed + 20)
        packing = Packing(key, value_bits, terms) if value_bits else None
        size = math.prod(shape)
        if math.prod(length or 1 for length in shape) > _MOST_ELEMENTS:
            raise InvalidValue("the encrypted array is too large", "length")
        expected = size if packing is None else -(-size // packing.slots)
        if (len(data) - start) != expected * (key.bits // 4):
            raise InvalidValue("the encrypted array does not have as many ciphertexts as its shape", "length")
        if used < 1 or (packing is not None and used > packing.terms):
            raise InvalidValue("the encrypted array has more terms than its packing allows", "terms")
        core = key._native.read_wire(data[start:], threads)
        return cls._of(key, core, shape, _scale(None if scale == _NO_SCALE else scale), packing, used)

    def to_ints(self, *, threads: int | None = None) -> list[int]:
        """Return the ciphertexts as integers modulo ``n ** 2``, the form of python-paillier."""
        _check_threads(threads)
        return [int.from_bytes(integer, "big") for integer in self._native.to_integers(threads)]

    @classmethod
    def from_ints(
        cls,
        ciphertexts: Iterable[int],
        key: EncryptionKey,
        *,
        scale_bits: int | None = None,
        threads: int | None = None,
    ) -> EncryptedArray:
        """Read ciphertexts that are integers modulo ``n ** 2``, and check them."""
        _check_threads(threads)
        _check_public(key)
        width = key.bits // 4
        integers = []
        for index, ciphertext in enumerate(ciphertexts):
            if isinstance(ciphertext, bool) or not isinstance(ciphertext, int):
                raise TypeError(f"a ciphertext is an int, not {type(ciphertext).__name__}")
            if not 0 < ciphertext < 1 << 8 * width:
                raise InvalidValue(f"ciphertext {index} is out of range", "ct_range")
            integers.append(ciphertext.to_bytes(width, "big"))
        core = key._native.read_integers(integers, threads)
        return cls._of(key, core, (len(integers),), _scale(scale_bits), None, 1)

    def __reduce__(
        self,
    ) -> tuple[Callable[[bytes, EncryptionKey], EncryptedArray], tuple[bytes, EncryptionKey]]:
        """Pickle the array, which is public, with its key."""
        return (_read_array, (self.to_bytes(), self._key))

    def _add_numbers(self, numbers: ArrayLike, threads: int | None) -> EncryptedArray:
        _check_threads(threads)
        if self._packing is not None:
            pairs, shape = _numbers(_spread(numbers, self._shape), self.scale_bits, self._key.n)
            terms = self._more_terms(1)
            core = self._native.add_packed(pairs, self._packing._native, threads)
            return self._with(core, shape, terms)
        shape = _common_shape(self._shape, _public_array(numbers).shape)
        array = self if shape == self._shape else self._broadcast_to(shape)
        pairs, _ = _numbers(_spread(numbers, shape), self.scale_bits, self._key.n)
        return array._with(array._native.add_numbers(pairs, threads), shape)

    def _product(self, integers: NDArray[Any], count: int, threads: int | None) -> _core.Ciphertexts:
        if integers.dtype == object:
            half = self._key.n // 2
            flat = [int(integer) for integer in np.broadcast_to(integers.reshape(-1), (count,))]
            if any(abs(integer) > half for integer in flat):
                raise InvalidValue(
                    "a factor is out of range; its magnitude must be below half the modulus",
                    "plaintext_range",
                )
            return self._native.mul_large([_sign_and_magnitude(integer) for integer in flat], threads)
        small = np.ascontiguousarray(np.broadcast_to(integers.reshape(-1), (count,)), np.int64)
        return self._native.mul_small(small, threads)

    def _check_operand(self, other: EncryptedArray) -> None:
        if other._key != self._key:
            raise KeyMismatch("the operands belong to different keys", "key_id")
        if other.scale_bits != self.scale_bits:
            raise InvalidValue(
                f"the arrays have {_bits(self.scale_bits)} and {_bits(other.scale_bits)} fractional bits",
                "fractional_bits",
            )
        if other._packing != self._packing:
            raise InvalidValue("the arrays are packed in different ways", "packing")

    def _check_unpacked(self, purpose: str) -> None:
        if self._packing is not None:
            raise InvalidValue(f"a packed array cannot be {purpose}", "packing")

    def _more_terms(self, terms: int) -> int:
        return 1 if self._packing is None else self._check_terms(self._terms + terms)

    def _check_terms(self, terms: int) -> int:
        packing = self._packing
        if packing is not None and terms > packing.terms:
            raise InvalidValue(
                f"the packing has room for {packing.terms} terms, and the sum has {terms}", "terms"
            )
        return terms

    def _positions(self) -> NDArray[np.int64]:
        return np.arange(self.size, dtype=np.int64).reshape(self._shape)

    def _broadcast_to(self, shape: tuple[int, ...]) -> EncryptedArray:
        self._check_unpacked("broadcast to another shape")
        positions = np.ascontiguousarray(np.broadcast_to(self._positions(), shape))
        return self._with(self._native.take(positions.reshape(-1)), shape)


def _read_array(data: bytes, key: EncryptionKey) -> EncryptedArray:
    return EncryptedArray.from_bytes(data, key)


class _Passphrase:
    """Checks a passphrase, and wipes it after use if that is possible."""

    def __init__(self, passphrase: bytes | bytearray) -> None:
        if not isinstance(passphrase, bytes | bytearray):
            raise TypeError(
                f"a passphrase is bytes or a bytearray, not {type(passphrase).__name__}; a bytearray is wiped after use"
            )
        self._passphrase = passphrase

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        if isinstance(self._passphrase, bytearray):
            self._passphrase[:] = bytes(len(self._passphrase))


def _numbers(values: ArrayLike, scale_bits: int | None, n: int) -> tuple[Any, tuple[int, ...]]:
    """Return numbers as the native part takes them, and their shape."""
    array = _public_array(values)
    scale = _scale(scale_bits)
    kind = array.dtype.kind
    if scale is not None and kind in "iuf":
        if array.dtype.itemsize > 8:
            raise TypeError(f"arrays of {array.dtype} are not supported; convert to float64")
        return (np.ascontiguousarray(array, np.float64).reshape(-1), scale), array.shape
    if kind == "f":
        raise TypeError(
            f"arrays of {array.dtype} need `scale_bits`, the number of bits after the binary point"
        )
    if kind == "i" or (kind == "u" and array.dtype.itemsize < 8):
        return (np.ascontiguousarray(array, np.int64).reshape(-1), None), array.shape
    if kind == "u":
        if array.size and int(array.max()) >= 1 << 63:
            return _residues(array.astype(object), n), array.shape
        return (np.ascontiguousarray(array, np.int64).reshape(-1), None), array.shape
    if kind == "O" and scale is None:
        return _residues(array, n), array.shape
    raise TypeError(f"arrays of {array.dtype} cannot be encrypted; use integers, or floats with `scale_bits`")


def _public_array(values: ArrayLike) -> NDArray[Any]:
    """Return values as an array. Integers beyond 64 bits become an array of objects, never of floats."""
    if isinstance(values, EncryptedArray):
        raise TypeError("the values are encrypted already")
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError("masked arrays are not supported; fill the masked values first")
    if isinstance(values, int) and not isinstance(values, bool) and not -(1 << 63) <= values < 1 << 63:
        return np.array(values, dtype=object)
    array = aligned(rectangular(values, "the array"))
    if array.dtype.kind == "f" and not isinstance(values, np.ndarray | np.generic | float):
        # numpy makes floats of lists that mix large positive with negative integers.
        objects = np.array(values, dtype=object)
        if (
            all(isinstance(value, int) and not isinstance(value, bool) for value in objects.flat)
            and objects.size
        ):
            return objects
    return array


def _residues(array: NDArray[Any], n: int) -> tuple[bytes, int]:
    width, half, parts = (n.bit_length() + 7) // 8, n // 2, []
    for value in array.flat:
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise TypeError(f"an array of objects must hold integers, not {type(value).__name__}")
        integer = int(value)
        if abs(integer) > half:
            raise InvalidValue(
                "the plaintext is out of range; its magnitude must be below half the modulus",
                "plaintext_range",
            )
        parts.append((integer % n).to_bytes(width, "big"))
    return b"".join(parts), -1


def _factors(values: ArrayLike) -> NDArray[Any]:
    """Return factors as int64, or as Python's integers if they are larger."""
    array = _public_array(values)
    kind = array.dtype.kind
    if kind == "i" or (kind == "u" and array.dtype.itemsize < 8):
        integers: NDArray[Any] = array.astype(np.int64)
        return integers
    if kind == "u" or kind == "O":
        objects: NDArray[Any] = array.astype(object)
        if all(isinstance(value, int) and not isinstance(value, bool) for value in objects.flat):
            return objects
    raise TypeError(f"an encrypted array can be multiplied by public integers only, not by {array.dtype}")


def _negated(values: ArrayLike, scale_bits: int | None) -> ArrayLike:
    """Return public numbers with the other sign, without overflow."""
    array = _public_array(values)
    kind = array.dtype.kind
    if kind == "f" or (scale_bits is not None and kind in "iu"):
        return cast(ArrayLike, -array.astype(np.float64))
    if kind == "i" and not np.any(array == _INT64_MIN):
        return cast(ArrayLike, -array.astype(np.int64))
    if kind in "iuO":
        negated = np.empty(array.shape, object)
        negated[...] = -array.astype(object)
        return cast(ArrayLike, negated)
    raise TypeError(f"arrays of {array.dtype} cannot be subtracted; use integers or floats")


def _spread(values: ArrayLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return public numbers in this shape."""
    array = _public_array(values)
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise InvalidValue(f"expected an array of shape {shape}, found {array.shape}", "length") from None


def _broadcast(left: EncryptedArray, right: EncryptedArray) -> tuple[EncryptedArray, EncryptedArray]:
    if left.shape == right.shape:
        return left, right
    shape = _common_shape(left.shape, right.shape)
    return left._broadcast_to(shape), right._broadcast_to(shape)


def _common_shape(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the sum of arrays of these shapes."""
    try:
        return np.broadcast_shapes(left, right)
    except ValueError:
        raise InvalidValue(f"arrays of shapes {left} and {right} do not fit", "length") from None


def _sign_and_magnitude(integer: int) -> tuple[bool, bytes]:
    magnitude = abs(integer)
    return integer < 0, magnitude.to_bytes((magnitude.bit_length() + 7) // 8, "big")


def _split(residues: bytes | bytearray, n: int) -> Iterable[int]:
    width = (n.bit_length() + 7) // 8
    return (int.from_bytes(residues[i : i + width], "big") for i in range(0, len(residues), width))


def _scale(scale_bits: int | None) -> int | None:
    if scale_bits is None:
        return None
    # 2 ** 1024 is not a float
    return _small(scale_bits, "scale_bits", 1023)


def _small(value: int, name: str, most: int) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{name} is an int, not bool")
    try:
        integer = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is an int, not {type(value).__name__}") from None
    if not 0 <= integer <= most:
        raise InvalidValue(f"{name} must be between 0 and {most}", "range")
    return integer


def _check_threads(threads: int | None) -> None:
    if threads is not None and _small(threads, "threads", 1 << 20) < 1:
        raise InvalidValue("a call needs at least one thread", "threads")


def _check_public(key: EncryptionKey) -> None:
    if not isinstance(key, EncryptionKey):
        raise TypeError(f"a public key is an EncryptionKey, not {type(key).__name__}")


def _bytes(data: bytes, what: str) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"{what} is read from bytes, not from {type(data).__name__}")
    return bytes(data)


def _bits(scale_bits: int | None) -> str:
    return "no" if scale_bits is None else str(scale_bits)
