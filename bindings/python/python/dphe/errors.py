"""The exceptions of this package.

Every exception has a short name, ``code``, which never changes, and ``culprit``, the number of the user who caused it
if it names one. Arguments of a wrong type raise :class:`TypeError` instead.
"""

from __future__ import annotations

__all__ = [
    "DpheError",
    "InsecureKeyWarning",
    "InvalidValue",
    "KeyMismatch",
    "Refused",
    "RoundFailed",
    "StorageError",
    "TooFewUsers",
]


class DpheError(Exception):
    """The base of all exceptions of this package.

    >>> from dphe.errors import DpheError
    >>> DpheError("the round failed", "round_failed").code
    'round_failed'
    """

    code: str
    culprit: int | None

    def __init__(self, message: str, code: str = "error", culprit: int | None = None) -> None:
        """Make an exception with a message, a code and perhaps the user who caused it."""
        super().__init__(message)
        self.code = code
        self.culprit = culprit

    def __reduce__(self) -> tuple[type[DpheError], tuple[str, str, int | None]]:
        """Pickle the exception with its code, which process pools need."""
        return (type(self), (str(self), self.code, self.culprit))


class InvalidValue(DpheError, ValueError):
    """A value is out of range, or arguments do not fit each other."""


class KeyMismatch(DpheError, ValueError):
    """Ciphertexts, pools or keys of different keys were mixed."""


class Refused(DpheError):
    """A secret operation was refused or broken off. The reason is not given if it would help an attacker."""


class RoundFailed(DpheError):
    """A round ended without a sum."""


class TooFewUsers(DpheError):
    """Fewer users took part than the task demands."""


class StorageError(DpheError, OSError):
    """A file could not be read or written."""


class InsecureKeyWarning(UserWarning):
    """A key is too short to protect anything."""
