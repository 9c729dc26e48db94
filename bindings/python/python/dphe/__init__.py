"""Encrypted sums: fast Paillier encryption of numpy arrays.

* :mod:`dphe.paillier` encrypts arrays of integers and fixed-point fractions, and computes with the ciphertexts.
* :mod:`dphe.phe` has the classes of python-paillier, on the same arithmetic.
* :mod:`dphe.sklearn` has estimators for scikit-learn that learn by encrypted rounds.
* :mod:`dphe.errors` has the exceptions of all modules.
"""

from __future__ import annotations

from dphe import errors
from dphe._core import version as _version
from dphe.errors import (
    DpheError,
    InsecureKeyWarning,
    InvalidValue,
    KeyMismatch,
    Refused,
    RoundFailed,
    StorageError,
    TooFewUsers,
)

__version__ = _version()

__all__ = [
    "DpheError",
    "InsecureKeyWarning",
    "InvalidValue",
    "KeyMismatch",
    "Refused",
    "RoundFailed",
    "StorageError",
    "TooFewUsers",
    "__version__",
    "errors",
]
