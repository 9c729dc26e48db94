"""Keys and encrypted numbers with the interface of python-paillier.

A number of a key of 2048, 3072 or 4096 bits keeps the form in which Rust computes, and becomes an integer only when
somebody asks for it.
"""

from __future__ import annotations

import functools
import math
import random
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from dphe import _core
from dphe.errors import DpheError, InsecureKeyWarning, InvalidValue, KeyMismatch
from dphe.phe.encoding import EncodedNumber
from dphe.phe.util import getprimeover, invert, is_prime, isqrt, powmod

__all__ = [
    "DEFAULT_KEYSIZE",
    "EncodedNumber",
    "EncryptedNumber",
    "PaillierPrivateKey",
    "PaillierPrivateKeyring",
    "PaillierPublicKey",
    "decrypt_many",
    "encrypt_many",
    "generate_paillier_keypair",
    "sum_of",
]

DEFAULT_KEYSIZE = 3072

_NATIVE_BITS = (2048, 3072, 4096)
# Below, the factors have one value or none.
_FEWEST_BITS = 8
# Noise is made for this many encryptions at a time, because that costs far less for each.
_FIRST_POOL, _LARGEST_POOL = 4, 64
_FEW = 8

_Raw = int | _core.Ciphertexts


class _Unprepared:
    """Stands for a key that has not been prepared for Rust yet."""


_UNPREPARED = _Unprepared()


def generate_paillier_keypair(
    private_keyring: PaillierPrivateKeyring | None = None, n_length: int = DEFAULT_KEYSIZE
) -> tuple[PaillierPublicKey, PaillierPrivateKey]:
    """Return a new public key of ``n_length`` bits and its private key, which is also added to the keyring.

    The factors of keys of 2048, 3072 and 4096 bits are safe primes, which take longer to find than other primes.
    """
    if n_length in _NATIVE_BITS:
        secret = _core.DecryptionKey.generate(n_length, "secure", None, None)
        public_key = PaillierPublicKey(int.from_bytes(secret.encryption_key.modulus(), "big"))
        public_key._prepared = secret.encryption_key
        p, q = (int.from_bytes(factor, "big") for factor in secret.factors())
        private_key = PaillierPrivateKey(public_key, p, q)
        private_key._prepared = secret
    else:
        p, q = _factors(n_length)
        public_key = PaillierPublicKey(p * q)
        private_key = PaillierPrivateKey(public_key, p, q)
    if private_keyring is not None:
        private_keyring.add(private_key)
    return public_key, private_key


def _factors(n_length: int) -> tuple[int, int]:
    """Return two different primes whose product has that many bits and is prime to the totient."""
    if n_length < _FEWEST_BITS:
        raise InvalidValue(f"a key needs at least {_FEWEST_BITS} bits, not {n_length}", "key_size")
    if n_length < 2048:
        warnings.warn(
            f"a key of {n_length} bits protects nothing; use 2048 bits or more",
            InsecureKeyWarning,
            stacklevel=3,
        )
    while True:
        p = getprimeover(n_length // 2)
        q = getprimeover(n_length - n_length // 2)
        if p != q and (p * q).bit_length() == n_length and (p - 1) % q and (q - 1) % p:
            return p, q


class PaillierPublicKey:
    """A public key, the modulus ``n``."""

    def __init__(self, n: int) -> None:
        """Take any modulus. Numbers up to ``max_int``, a third of it, can be encrypted."""
        self.g = n + 1
        self.n = n
        self.nsquare = n * n
        self.max_int = n // 3 - 1
        self._width = (n.bit_length() + 7) // 8
        # The modulus in Rust's form, or None if Rust does not accept it. It is made when it is first needed.
        self._prepared: _core.EncryptionKey | _Unprepared | None = _UNPREPARED
        self._pool: _core.Pool | None = None
        self._refill = _FIRST_POOL

    @property
    def _native(self) -> _core.EncryptionKey | None:
        if isinstance(self._prepared, _Unprepared):
            self._prepared = _native_key(self.n)
        return self._prepared

    def __repr__(self) -> str:
        """Name the key by a hash."""
        return f"<PaillierPublicKey {hex(hash(self))[2:][:10]}>"

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same modulus."""
        return isinstance(other, PaillierPublicKey) and self.n == other.n

    def __hash__(self) -> int:
        """Return a hash of the modulus."""
        return hash(self.n)

    def __reduce__(self) -> tuple[type[PaillierPublicKey], tuple[int]]:
        """Pickle the modulus only."""
        return (type(self), (self.n,))

    def get_random_lt_n(self) -> int:
        """Return a random number from 1 to ``n - 1`` without a common factor with ``n``."""
        while True:
            number = random.SystemRandom().randrange(1, self.n)
            # Of a short key, many numbers have one, and as noise would make a ciphertext that nobody can decrypt.
            if math.gcd(number, self.n) == 1:
                return number

    def raw_encrypt(self, plaintext: int, r_value: int | None = None) -> int:
        """Encrypt an integer modulo ``n``, with noise from ``r_value`` or from the operating system's randomness."""
        return self._integer(self._raw_encrypt(plaintext, r_value))

    def encrypt(
        self, value: Any, precision: float | None = None, r_value: int | None = None
    ) -> EncryptedNumber:
        """Encrypt an int, a float or an :class:`EncodedNumber`. ``precision`` rounds a float."""
        encoding = value if isinstance(value, EncodedNumber) else EncodedNumber.encode(self, value, precision)
        return self.encrypt_encoded(encoding, r_value)

    def encrypt_encoded(self, encoding: EncodedNumber, r_value: int | None) -> EncryptedNumber:
        """Encrypt an encoded number."""
        raw = self._raw_encrypt(encoding.encoding, r_value)
        # As in python-paillier, noise that the caller chose does not count.
        return EncryptedNumber._of(self, raw, encoding.exponent, r_value is None)

    def encrypt_many(self, values: Iterable[Any], precision: float | None = None) -> list[EncryptedNumber]:
        """Encrypt a list, many times faster than one number at a time. python-paillier does not have this."""
        encodings = [
            value if isinstance(value, EncodedNumber) else EncodedNumber.encode(self, value, precision)
            for value in values
        ]
        if self._native is None:
            return [self.encrypt_encoded(encoding, None) for encoding in encodings]
        data = b"".join(self._residue(encoding.encoding) for encoding in encodings)
        batch = self._native.encrypt((data, -1), None, None)
        return [
            EncryptedNumber._of(self, raw, encoding.exponent, True)
            for raw, encoding in zip(_single(batch), encodings, strict=True)
        ]

    def _raw_encrypt(self, plaintext: int, r_value: int | None) -> _Raw:
        if not isinstance(plaintext, int):
            raise TypeError(f"a plaintext is an int, not {type(plaintext).__name__}")
        if self._native is not None and r_value is None:
            return self._encrypt_residue(self._residue(plaintext))
        if self._native is not None and r_value is not None and r_value != 1:
            try:
                return self._native.encrypt_with_nonce(
                    self._residue(plaintext), self._bytes(r_value % self.n)
                )
            except DpheError:
                pass  # An `r_value` that is not a unit is for Python's integers.
        noise = self.get_random_lt_n() if r_value is None else r_value
        return (self.n * plaintext + 1) * powmod(noise, self.n, self.nsquare) % self.nsquare

    def _encrypt_residue(self, residue: bytes) -> _core.Ciphertexts:
        assert self._native is not None
        while True:
            try:
                return self._native.encrypt((residue, -1), self._noise(), 1)
            except InvalidValue as error:
                # Another thread has taken the noise in between.
                if error.code != "pool_empty":
                    raise

    def _noise(self) -> _core.Pool:
        """Return a pool that holds noise. The first numbers wait for a few noises only, later ones for more."""
        assert self._native is not None
        if self._pool is None:
            self._pool = _core.Pool(self._native)
        if len(self._pool) == 0:
            self._pool.refill(self._refill, None)
            self._refill = min(4 * self._refill, _LARGEST_POOL)
        return self._pool

    def _residue(self, plaintext: int) -> bytes:
        return (plaintext % self.n).to_bytes(self._width, "big")

    def _bytes(self, integer: int) -> bytes:
        return integer.to_bytes((integer.bit_length() + 7) // 8, "big")

    def _integer(self, raw: _Raw) -> int:
        return raw if isinstance(raw, int) else int.from_bytes(raw.to_integers(1)[0], "big")

    def _read(self, raw: _Raw) -> _core.Ciphertexts | None:
        """Return a ciphertext in Rust's form, or None if it must stay an integer."""
        if not isinstance(raw, int):
            return raw
        if self._native is None or not 0 < raw < self.nsquare:
            return None
        try:
            return self._native.read_integers([self._bytes(raw)], 1)
        except DpheError:
            return None

    def _read_many(self, numbers: Sequence[EncryptedNumber]) -> list[_core.Ciphertexts | None]:
        """Return ciphertexts in Rust's form, and keep them. Integers are read at once, which is faster."""
        integers = [number for number in numbers if isinstance(number._raw, int)]
        if self._native is not None and len(integers) > 1:
            try:
                # Starting a thread takes longer than reading a few.
                threads = 1 if len(integers) < _FEW else None
                batch = self._native.read_integers(
                    [self._bytes(cast(int, n._raw)) for n in integers], threads
                )
            except (DpheError, OverflowError):
                pass  # At least one of them must stay an integer.
            else:
                for number, raw in zip(integers, batch.split(), strict=True):
                    own = number.public_key._native
                    if own is self._native:
                        number._raw = raw
                    elif own is not None:
                        # Another object of the same key may get its noise in another way.
                        number._raw = _core.Ciphertexts.join(own, [raw])
        return [number._native_form() for number in numbers]


class PaillierPrivateKey:
    """A private key. Its factors ``p < q`` are attributes, and everyone who sees one can decrypt everything."""

    def __init__(self, public_key: PaillierPublicKey, p: int, q: int) -> None:
        """Take the factors of a public key."""
        if p * q != public_key.n:
            raise KeyMismatch("p and q are not the factors of the public key", "key_id")
        if p == q:
            raise InvalidValue("p and q are equal", "key_modulus")
        self.public_key = public_key
        self.p, self.q = min(p, q), max(p, q)
        self.psquare, self.qsquare = self.p * self.p, self.q * self.q
        self._prepared: _core.DecryptionKey | _Unprepared | None = _UNPREPARED

    @functools.cached_property
    def p_inverse(self) -> int:
        """The inverse of ``p`` modulo ``q``."""
        return invert(self.p, self.q)

    @functools.cached_property
    def hp(self) -> int:
        """The factor of decryptions modulo ``p``."""
        return self.h_function(self.p, self.psquare)

    @functools.cached_property
    def hq(self) -> int:
        """The factor of decryptions modulo ``q``."""
        return self.h_function(self.q, self.qsquare)

    @property
    def _native(self) -> _core.DecryptionKey | None:
        if isinstance(self._prepared, _Unprepared):
            accepted = self.public_key._native is not None
            self._prepared = _native_secret(self.p, self.q) if accepted else None
        return self._prepared

    @functools.cached_property
    def _own_key(self) -> _core.EncryptionKey:
        assert self._native is not None
        return self._native.encryption_key

    @staticmethod
    def from_totient(public_key: PaillierPublicKey, totient: int) -> PaillierPrivateKey:
        """Return the private key of a public key whose totient ``(p - 1) * (q - 1)`` is known."""
        total = public_key.n - totient + 1
        # p and q are the roots of x**2 - total * x + n.
        difference = isqrt(max(total * total - 4 * public_key.n, 0))
        q = (total - difference) // 2
        p = q + difference
        if p * q != public_key.n:
            raise KeyMismatch("the totient is not that of the public key", "key_id")
        return PaillierPrivateKey(public_key, p, q)

    def __repr__(self) -> str:
        """Name the public key only."""
        return f"<PaillierPrivateKey for {self.public_key!r}>"

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same factors."""
        return isinstance(other, PaillierPrivateKey) and self.p == other.p and self.q == other.q

    def __hash__(self) -> int:
        """Return a hash of the factors."""
        return hash((self.p, self.q))

    def __reduce__(self) -> tuple[type[PaillierPrivateKey], tuple[PaillierPublicKey, int, int]]:
        """Pickle the factors, as python-paillier does."""
        return (type(self), (self.public_key, self.p, self.q))

    def decrypt(self, encrypted_number: EncryptedNumber) -> Any:
        """Decrypt a number."""
        return self.decrypt_encoded(encrypted_number).decode()

    def decrypt_encoded(
        self,
        encrypted_number: EncryptedNumber,
        Encoding: type[EncodedNumber] | None = None,
    ) -> EncodedNumber:
        """Decrypt a number, and leave it encoded. ``Encoding`` is the class of the result."""
        self._check(encrypted_number)
        raw = encrypted_number._raw
        residue = self._decrypt_native(raw) if not isinstance(raw, int) else self.raw_decrypt(raw)
        return (Encoding or EncodedNumber)(self.public_key, residue, encrypted_number.exponent)

    def decrypt_many(self, numbers: Iterable[EncryptedNumber]) -> list[Any]:
        """Decrypt a list, several times faster than one number at a time. python-paillier does not have this."""
        listed = list(numbers)
        for number in listed:
            self._check(number)
        raws = self.public_key._read_many(listed)
        if self._native is None or any(raw is None for raw in raws):
            return [self.decrypt(number) for number in listed]
        batch = _core.Ciphertexts.join(self._native.encryption_key, cast(list[_core.Ciphertexts], raws))
        residues = self._native.decrypt_residues(batch, None)
        width = self.public_key._width
        return [
            EncodedNumber(
                self.public_key, int.from_bytes(residues[i * width : (i + 1) * width], "big"), number.exponent
            ).decode()
            for i, number in enumerate(listed)
        ]

    def raw_decrypt(self, ciphertext: int) -> int:
        """Decrypt an integer modulo ``n ** 2`` to an integer modulo ``n``."""
        if not isinstance(ciphertext, int):
            raise TypeError(f"a ciphertext is an int, not {type(ciphertext).__name__}")
        # Only the residue matters. Another form of it must not lead to the decryption without a check.
        ciphertext %= self.public_key.nsquare
        raw = self.public_key._read(ciphertext)
        if raw is not None and self._native is not None:
            return self._decrypt_native(raw)
        mp = self.l_function(powmod(ciphertext, self.p - 1, self.psquare), self.p) * self.hp % self.p
        mq = self.l_function(powmod(ciphertext, self.q - 1, self.qsquare), self.q) * self.hq % self.q
        return self.crt(mp, mq)

    def h_function(self, x: int, xsquare: int) -> int:
        """Return the inverse of ``L(g ** (x - 1))`` modulo the factor ``x``."""
        return invert(self.l_function(powmod(self.public_key.g, x - 1, xsquare), x), x)

    def l_function(self, x: int, p: int) -> int:
        """Return ``L(x) = (x - 1) / p``."""
        return (x - 1) // p

    def crt(self, mp: int, mq: int) -> int:
        """Return the number below ``n`` that is ``mp`` modulo ``p`` and ``mq`` modulo ``q``."""
        return mp + (mq - mp) * self.p_inverse % self.q * self.p

    def _decrypt_native(self, raw: _core.Ciphertexts) -> int:
        assert self._native is not None
        raw = _core.Ciphertexts.join(self._own_key, [raw])
        try:
            return int.from_bytes(self._native.decrypt_residues(raw, 1), "big")
        except DpheError:
            # A failed self-check of a real key is a fault, and its result would reveal a factor.
            if is_prime(self.p) and is_prime(self.q):
                raise
            # The factors are not prime, so the self-check must fail. python-paillier returns a number all the same.
            return self._decrypt_integer(int.from_bytes(raw.to_integers(1)[0], "big"))

    def _decrypt_integer(self, ciphertext: int) -> int:
        mp = self.l_function(powmod(ciphertext, self.p - 1, self.psquare), self.p) * self.hp % self.p
        mq = self.l_function(powmod(ciphertext, self.q - 1, self.qsquare), self.q) * self.hq % self.q
        return self.crt(mp, mq)

    def _check(self, encrypted_number: EncryptedNumber) -> None:
        if not isinstance(encrypted_number, EncryptedNumber):
            raise TypeError(f"an EncryptedNumber can be decrypted, not {type(encrypted_number).__name__}")
        if self.public_key != encrypted_number.public_key:
            raise KeyMismatch("the number was encrypted with another key", "key_id")


class PaillierPrivateKeyring(Mapping[PaillierPublicKey, PaillierPrivateKey]):
    """Private keys by their public keys."""

    # A keyring can be changed, so it has no hash.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, private_keys: Iterable[PaillierPrivateKey] | None = None) -> None:
        """Take private keys."""
        self._keys: dict[PaillierPublicKey, PaillierPrivateKey] = {}
        for private_key in private_keys or ():
            self.add(private_key)

    def __getitem__(self, key: PaillierPublicKey) -> PaillierPrivateKey:
        """Return the private key of a public key."""
        return self._keys[key]

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._keys)

    def __iter__(self) -> Iterator[PaillierPublicKey]:
        """Iterate over the public keys."""
        return iter(self._keys)

    def __delitem__(self, public_key: PaillierPublicKey) -> None:
        """Remove the private key of a public key."""
        del self._keys[public_key]

    def add(self, private_key: PaillierPrivateKey) -> None:
        """Add a private key."""
        if not isinstance(private_key, PaillierPrivateKey):
            raise TypeError(
                f"a keyring holds objects of PaillierPrivateKey, not of {type(private_key).__name__}"
            )
        self._keys[private_key.public_key] = private_key

    def decrypt(self, encrypted_number: EncryptedNumber) -> Any:
        """Decrypt a number with the key that it was encrypted for."""
        return self[encrypted_number.public_key].decrypt(encrypted_number)


class EncryptedNumber:
    """A ciphertext with a public exponent. It adds to numbers and multiplies with public ones."""

    def __init__(self, public_key: PaillierPublicKey, ciphertext: int, exponent: int = 0) -> None:
        """Take a ciphertext, an integer modulo ``n ** 2``."""
        if isinstance(ciphertext, EncryptedNumber):
            raise TypeError(f"a ciphertext is an int, not {type(ciphertext).__name__}")
        if not isinstance(public_key, PaillierPublicKey):
            raise TypeError(f"a number needs a PaillierPublicKey, not {type(public_key).__name__}")
        self.public_key = public_key
        self.exponent = exponent
        self._raw: _Raw = ciphertext
        self.__is_obfuscated = False

    @classmethod
    def _of(
        cls, public_key: PaillierPublicKey, raw: _Raw, exponent: int, obfuscated: bool
    ) -> EncryptedNumber:
        number = cls.__new__(cls)
        number.public_key, number.exponent, number._raw = public_key, exponent, raw
        number.__is_obfuscated = obfuscated
        return number

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the ciphertext as an integer."""
        return {**self.__dict__, "_raw": self.public_key._integer(self._raw)}

    def __add__(self, other: Any) -> EncryptedNumber:
        """Return the sum with an encrypted, encoded or public number."""
        if isinstance(other, EncryptedNumber):
            return self._add_encrypted(other)
        if isinstance(other, EncodedNumber):
            return self._add_encoded(other)
        return self._add_scalar(other)

    def __radd__(self, other: Any) -> EncryptedNumber:
        """Return the sum with a public number."""
        return self.__add__(other)

    def __mul__(self, other: Any) -> EncryptedNumber:
        """Return the product with a public or encoded number."""
        if isinstance(other, EncryptedNumber):
            raise NotImplementedError("two encrypted numbers cannot be multiplied")
        encoding = other if isinstance(other, EncodedNumber) else EncodedNumber.encode(self.public_key, other)
        product = self._times(encoding.encoding)
        return EncryptedNumber._of(self.public_key, product, self.exponent + encoding.exponent, False)

    def __rmul__(self, other: Any) -> EncryptedNumber:
        """Return the product with a public or encoded number."""
        return self.__mul__(other)

    def __sub__(self, other: Any) -> EncryptedNumber:
        """Return the difference."""
        return self.__add__(other * -1)

    def __rsub__(self, other: Any) -> EncryptedNumber:
        """Return the difference of a public number and this one."""
        return self.__mul__(-1).__add__(other)

    def __truediv__(self, scalar: Any) -> EncryptedNumber:
        """Return the product with the inverse of a public number."""
        return self.__mul__(1 / scalar)

    def ciphertext(self, be_secure: bool = True) -> int:
        """Return the ciphertext as an integer, with fresh noise unless it has some or ``be_secure`` is false."""
        if be_secure and not self.__is_obfuscated:
            self.obfuscate()
        return self.public_key._integer(self._raw)

    def decrease_exponent_to(self, new_exp: int) -> EncryptedNumber:
        """Return an encryption of the same number with a smaller exponent."""
        if new_exp > self.exponent:
            raise InvalidValue(f"{new_exp} is above the exponent, which is {self.exponent}", "range")
        factor = pow(EncodedNumber.BASE, self.exponent - new_exp)
        return EncryptedNumber._of(self.public_key, self._times(factor % self.public_key.n), new_exp, False)

    def obfuscate(self) -> None:
        """Add fresh noise, in place."""
        key = self.public_key
        raw = self._native_form()
        if raw is not None and key._native is not None:
            self._raw = raw.add(key._encrypt_residue(bytes(key._width)), 1)
        else:
            noise = powmod(key.get_random_lt_n(), key.n, key.nsquare)
            self._raw = key._integer(self._raw) * noise % key.nsquare
        self.__is_obfuscated = True

    def _add_scalar(self, scalar: Any) -> EncryptedNumber:
        return self._add_encoded(EncodedNumber.encode(self.public_key, scalar, max_exponent=self.exponent))

    def _add_encoded(self, encoded: EncodedNumber) -> EncryptedNumber:
        if self.public_key != encoded.public_key:
            raise KeyMismatch("the numbers were encoded for different keys", "key_id")
        number = self
        if number.exponent > encoded.exponent:
            number = number.decrease_exponent_to(encoded.exponent)
        elif number.exponent < encoded.exponent:
            encoded = encoded.decrease_exponent_to(number.exponent)
        key, raw = self.public_key, number._native_form()
        total: _Raw
        if raw is not None:
            total = raw.add_numbers((key._residue(encoded.encoding), -1), 1)
        else:
            term = cast(int, key._raw_encrypt(encoded.encoding, 1))
            total = key._integer(number._raw) * term % key.nsquare
        return EncryptedNumber._of(key, total, number.exponent, False)

    def _add_encrypted(self, other: EncryptedNumber) -> EncryptedNumber:
        if self.public_key != other.public_key:
            raise KeyMismatch("the numbers were encrypted with different keys", "key_id")
        left, right = self, other
        if left.exponent > right.exponent:
            left = left.decrease_exponent_to(right.exponent)
        elif left.exponent < right.exponent:
            right = right.decrease_exponent_to(left.exponent)
        key = self.public_key
        if isinstance(left._raw, int) and isinstance(right._raw, int):
            key._read_many((left, right))  # checks both at once, which costs less than one after the other
        one, two = left._native_form(), right._native_form()
        total: _Raw
        if one is not None and two is not None:
            if key is not right.public_key and key._native is not None:
                # Another object of the same key may get its noise in another way.
                two = _core.Ciphertexts.join(key._native, [two])
            total = one.add(two, 1)
        else:
            total = self._raw_add(left.ciphertext(False), right.ciphertext(False))
        return EncryptedNumber._of(key, total, left.exponent, False)

    def _raw_add(self, e_a: int, e_b: int) -> int:
        """Return the ciphertext of the sum of two ciphertexts that are integers."""
        return e_a * e_b % self.public_key.nsquare

    def _raw_mul(self, plaintext: int) -> int:
        """Return the ciphertext of the product with an integer modulo ``n``, as an integer."""
        return self.public_key._integer(self._times(plaintext))

    def _times(self, plaintext: int) -> _Raw:
        if not isinstance(plaintext, int):
            raise TypeError(f"a factor is an int, not {type(plaintext).__name__}")
        key = self.public_key
        if not 0 <= plaintext < key.n:
            raise InvalidValue("the factor is negative or not below the modulus", "plaintext_range")
        # Large integers stand for negative ones, whose magnitudes are small.
        negative = plaintext >= key.n - key.max_int
        magnitude = key.n - plaintext if negative else plaintext
        raw = self._native_form()
        if raw is not None:
            return raw.mul_large([(negative, key._bytes(magnitude))], 1)
        base = key._integer(self._raw)
        return powmod(invert(base, key.nsquare) if negative else base, magnitude, key.nsquare)

    def _native_form(self) -> _core.Ciphertexts | None:
        """Return the ciphertext in Rust's form, and keep it."""
        raw = self.public_key._read(self._raw)
        if raw is not None:
            self._raw = raw
        return raw


def encrypt_many(
    public_key: PaillierPublicKey, values: Iterable[Any], precision: float | None = None
) -> list[EncryptedNumber]:
    """Encrypt a list. See :meth:`PaillierPublicKey.encrypt_many`."""
    return public_key.encrypt_many(values, precision)


def decrypt_many(private_key: PaillierPrivateKey, numbers: Iterable[EncryptedNumber]) -> list[Any]:
    """Decrypt a list. See :meth:`PaillierPrivateKey.decrypt_many`."""
    return private_key.decrypt_many(numbers)


def sum_of(numbers: Sequence[EncryptedNumber]) -> EncryptedNumber:
    """Return the sum of encrypted numbers of one key.

    >>> public_key, private_key = generate_paillier_keypair(n_length=2048)
    >>> private_key.decrypt(sum_of(public_key.encrypt_many([1, 2.5, 3])))
    6.5
    """
    if not numbers:
        raise InvalidValue("a sum needs at least one number", "length")
    for number in numbers:
        if not isinstance(number, EncryptedNumber):
            raise TypeError(f"sum_of adds encrypted numbers, not {type(number).__name__}")
    key = numbers[0].public_key
    if any(number.public_key != key for number in numbers):
        raise KeyMismatch("the numbers were encrypted with different keys", "key_id")
    exponent = min(number.exponent for number in numbers)
    numbers = [
        number if number.exponent == exponent else number.decrease_exponent_to(exponent) for number in numbers
    ]
    raws = key._read_many(numbers)
    if key._native is not None and all(raw is not None for raw in raws):
        batch = _core.Ciphertexts.join(key._native, cast(list[_core.Ciphertexts], raws))
        return EncryptedNumber._of(key, batch.sum_rows(1, len(raws), None), exponent, False)
    total = numbers[0]
    for number in numbers[1:]:
        total = total + number
    return total


def _single(batch: _core.Ciphertexts) -> list[_core.Ciphertexts]:
    """Return each ciphertext of a batch as a batch of one."""
    return batch.split()


@functools.lru_cache(maxsize=16)
def _native_key(n: int) -> _core.EncryptionKey | None:
    """Return the modulus prepared for Rust, or None if Rust does not accept it."""
    if n.bit_length() not in _NATIVE_BITS:
        return None
    try:
        return _core.EncryptionKey.from_modulus(n.to_bytes((n.bit_length() + 7) // 8, "big"), "textbook")
    except DpheError:
        return None


def _native_secret(p: int, q: int) -> _core.DecryptionKey | None:
    """Return the factors prepared for Rust, or None if Rust does not accept them.

    Nobody sees the noise of this key: it only hides ciphertexts from those who can measure a decryption.
    """
    width = (q.bit_length() + 7) // 8
    try:
        return _core.DecryptionKey.from_factors(p.to_bytes(width, "big"), q.to_bytes(width, "big"), "fast")
    except DpheError:
        return None
