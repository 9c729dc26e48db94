"""Number theory on Python's integers, and base64 forms of integers and bytes."""

from __future__ import annotations

import base64
import binascii
import math
import secrets

__all__ = [
    "HAVE_CRYPTO",
    "HAVE_GMP",
    "base64_to_int",
    "base64url_decode",
    "base64url_encode",
    "extended_euclidean_algorithm",
    "first_primes",
    "getprimeover",
    "improved_i_sqrt",
    "int_to_base64",
    "invert",
    "is_prime",
    "isqrt",
    "miller_rabin",
    "mulmod",
    "powmod",
]

# What python-paillier would use. This module needs neither.
HAVE_GMP = False
HAVE_CRYPTO = False


def _primes_below(limit: int) -> list[int]:
    sieve = bytearray([1]) * limit
    sieve[:2] = b"\0\0"
    for i in range(2, math.isqrt(limit) + 1):
        if sieve[i]:
            sieve[i * i :: i] = bytes(len(range(i * i, limit, i)))
    return [i for i, prime in enumerate(sieve) if prime]


first_primes = _primes_below(10_000)


def powmod(a: int, b: int, c: int) -> int:
    """Return ``a ** b % c``.

    >>> powmod(3, 4, 10)
    1
    """
    if a == 1:
        return 1
    return pow(a, b, c)


def mulmod(a: int, b: int, c: int) -> int:
    """Return ``a * b % c``."""
    return a * b % c


def extended_euclidean_algorithm(a: int, b: int) -> tuple[int, int, int]:
    """Return ``(r, s, t)``, where ``r`` is the greatest common divisor, and ``r == s * a + t * b``.

    >>> extended_euclidean_algorithm(240, 46)
    (2, -9, 47)
    """
    r0, r1, s0, s1, t0, t1 = a, b, 1, 0, 0, 1
    while r1:
        q = r0 // r1
        r0, r1 = r1, r0 - q * r1
        s0, s1 = s1, s0 - q * s1
        t0, t1 = t1, t0 - q * t1
    return r0, s0, t0


def invert(a: int, b: int) -> int:
    """Return the inverse of ``a`` modulo ``b``, or raise :class:`ZeroDivisionError` if there is none.

    >>> invert(3, 7)
    5
    """
    try:
        return pow(a, -1, b)
    except ValueError:
        raise ZeroDivisionError("there is no inverse") from None


def getprimeover(N: int) -> int:
    """Return a random prime of ``N`` bits."""
    while True:
        candidate = secrets.randbits(N) | 1 | 1 << (N - 1) if N > 2 else 2 + secrets.randbelow(2)
        if is_prime(candidate):
            return candidate


def isqrt(N: int) -> int:
    """Return the integer square root."""
    return math.isqrt(N)


improved_i_sqrt = isqrt


def miller_rabin(n: int, k: int) -> bool:
    """Return whether ``n > 3`` passes ``k`` rounds of the test of Miller and Rabin."""
    if n <= 3:
        raise ValueError("the test needs a number above 3")
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(n, 2 + secrets.randbelow(n - 3), odd, twos) for _ in range(k))


def _passes(n: int, base: int, odd: int, twos: int) -> bool:
    power = pow(base, odd, n)
    if power in (1, n - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % n
        if power == n - 1:
            return True
    return False


def is_prime(n: int, mr_rounds: int = 25) -> bool:
    """Return whether ``n`` is a prime, with an error below ``4 ** -mr_rounds``."""
    if n <= first_primes[-1]:
        return n in _FIRST
    if any(n % prime == 0 for prime in first_primes):
        return False
    return miller_rabin(n, mr_rounds)


_FIRST = frozenset(first_primes)


def base64url_encode(payload: bytes | str) -> str:
    """Return bytes (or text as UTF-8) in the base64 alphabet for URLs, without padding."""
    data = payload.encode("utf-8") if isinstance(payload, str) else payload
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def base64url_decode(payload: str | bytes) -> bytes:
    """Read what :func:`base64url_encode` wrote."""
    text = payload.decode("ascii") if isinstance(payload, bytes) else payload
    if len(text) % 4 == 1:
        raise ValueError("the text is not base64")
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise ValueError("the text is not base64") from error


def int_to_base64(source: int) -> str:
    """Return a non-negative integer as big-endian bytes in base64.

    >>> int_to_base64(65537)
    'AQAB'
    """
    if source == 0:
        raise AssertionError("zero has no bytes")
    return base64url_encode(source.to_bytes((source.bit_length() + 7) // 8, "big"))


def base64_to_int(source: str) -> int:
    """Read what :func:`int_to_base64` wrote."""
    return int.from_bytes(base64url_decode(source), "big")
