"""Encrypted sums: secure sums of vectors, and fast Paillier encryption of numpy arrays.

* :mod:`dphe.roles` has the parties of secure sums, :class:`Task`, :class:`User`, :class:`Aggregator` and
  :class:`KeyGenerator`, and :mod:`dphe.layout` the :class:`Layout` of named arrays.
* :mod:`dphe.vectors` chooses what part of a vector is sent.
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
from dphe.layout import Layout
from dphe.roles import (
    Aggregator,
    AggregatorKit,
    Collecting,
    Cost,
    KeyGenerator,
    SparseVector,
    Sum,
    Task,
    User,
    UserKit,
)

__version__ = _version()

__all__ = [
    "Aggregator",
    "AggregatorKit",
    "Collecting",
    "Cost",
    "DpheError",
    "InsecureKeyWarning",
    "InvalidValue",
    "KeyGenerator",
    "KeyMismatch",
    "Layout",
    "Refused",
    "RoundFailed",
    "SparseVector",
    "StorageError",
    "Sum",
    "Task",
    "TooFewUsers",
    "User",
    "UserKit",
    "__version__",
    "errors",
]
