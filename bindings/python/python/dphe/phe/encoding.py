"""Numbers as integers modulo ``n`` with a public exponent."""

from __future__ import annotations

import fractions
import math
import sys
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from dphe.errors import InvalidValue

if TYPE_CHECKING:
    from dphe.phe.paillier import PaillierPublicKey

__all__ = ["EncodedNumber"]

_Self = TypeVar("_Self", bound="EncodedNumber")


class EncodedNumber:
    """The number ``encoding * BASE ** exponent``, where integers above ``n - max_int`` stand for negative ones.

    >>> from dphe.phe import PaillierPublicKey
    >>> key = PaillierPublicKey((2**61 - 1) * (2**89 - 1))
    >>> number = EncodedNumber.encode(key, 0.75)
    >>> number.exponent, number.decode()
    (-14, 0.75)
    """

    BASE: ClassVar[int] = 16
    LOG2_BASE: ClassVar[float] = math.log(BASE, 2)
    FLOAT_MANTISSA_BITS: ClassVar[int] = sys.float_info.mant_dig

    public_key: PaillierPublicKey
    encoding: int
    exponent: int

    def __init__(self, public_key: PaillierPublicKey, encoding: int, exponent: int) -> None:
        """Take an integer modulo ``n`` and an exponent as they are."""
        self.public_key = public_key
        self.encoding = encoding
        self.exponent = exponent

    @classmethod
    def encode(
        cls: type[_Self],
        public_key: PaillierPublicKey,
        scalar: Any,
        precision: float | None = None,
        max_exponent: int | None = None,
    ) -> _Self:
        """Encode an int exactly, and a float exactly or to the given precision.

        ``max_exponent`` bounds the exponent from above, so that the number can be added to one with that exponent.
        """
        if isinstance(scalar, float) and math.isnan(scalar):
            raise InvalidValue("NaN cannot be encoded", "number")
        exponent = cls._exponent(scalar, precision)
        if max_exponent is not None:
            exponent = min(max_exponent, exponent)
        if isinstance(scalar, int) and exponent <= 0:
            integer = int(scalar) * cls.BASE**-exponent
        else:
            # Fractions are exact. Floats would overflow for large exponents.
            integer = round(fractions.Fraction(scalar) * fractions.Fraction(cls.BASE) ** -exponent)
        if abs(integer) > public_key.max_int:
            raise InvalidValue(f"the integer is not within +/- {public_key.max_int}", "plaintext_range")
        return cls(public_key, integer % public_key.n, exponent)

    @classmethod
    def _exponent(cls, scalar: Any, precision: float | None) -> int:
        if precision is not None:
            return math.floor(math.log(precision, cls.BASE))
        if isinstance(scalar, int):
            return 0
        if isinstance(scalar, float):
            # the exponent of the last bit of the mantissa
            last = math.frexp(scalar)[1] - cls.FLOAT_MANTISSA_BITS
            return math.floor(last / cls.LOG2_BASE)
        raise TypeError(f"an int or a float can be encoded, not {type(scalar).__name__}")

    def decode(self) -> Any:
        """Return the number: an int if the exponent is not negative, otherwise a float."""
        n, max_int = self.public_key.n, self.public_key.max_int
        if self.encoding >= n:
            raise InvalidValue("the encoded number is not below the modulus", "plaintext_range")
        if self.encoding <= max_int:
            mantissa = self.encoding
        elif self.encoding >= n - max_int:
            mantissa = self.encoding - n
        else:
            raise OverflowError("the number is too large for its key, perhaps after a computation")
        if self.exponent >= 0:
            return mantissa * self.BASE**self.exponent
        try:
            return mantissa / self.BASE**-self.exponent
        except OverflowError:
            raise OverflowError("the number is too large for a float") from None

    def decrease_exponent_to(self: _Self, new_exp: int) -> _Self:
        """Return the same number with a smaller exponent."""
        if new_exp > self.exponent:
            raise InvalidValue(f"{new_exp} is above the exponent, which is {self.exponent}", "range")
        factor = self.BASE ** (self.exponent - new_exp)
        return self.__class__(self.public_key, self.encoding * factor % self.public_key.n, new_exp)
