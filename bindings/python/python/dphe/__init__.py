"""Encrypted sums: secure sums of vectors, and fast Paillier encryption of numpy arrays.

* :mod:`dphe.roles` has the parties of secure sums, :class:`Task`, :class:`User`, :class:`Aggregator` and
  :class:`KeyGenerator`, and :mod:`dphe.layout` the :class:`Layout` of named arrays.
* :mod:`dphe.vectors` chooses what part of a vector is sent.
* :mod:`dphe.paillier` encrypts arrays of integers and fixed-point fractions, and computes with the ciphertexts.
* :mod:`dphe.phe` has the classes of python-paillier, on the same arithmetic.
* :mod:`dphe.sklearn` has estimators for scikit-learn that learn by encrypted rounds.
* :mod:`dphe.flower` adds encrypted averages to training with Flower, and :mod:`dphe.torch` turns networks into named
  arrays.
* :mod:`dphe.errors` has the exceptions of all modules.

Three users add up their vectors. The aggregator reads none of them, and the key generator opens the sum only:

>>> import numpy as np
>>> import dphe
>>> task = dphe.Task(1000, users=3, key_bits=2048)
>>> generator = dphe.KeyGenerator(task)  # takes seconds; longer with 3072 bits, the default
>>> users = [dphe.User(generator.enroll(number)) for number in (1, 2, 3)]
>>> collecting = dphe.Aggregator(generator.aggregator_kit()).begin(1)
>>> for user in users:
...     sender = collecting.accept(user.seal(1, np.full(1000, 0.25)))
>>> published = collecting.publish(generator.open(collecting.finish()))
>>> float(users[0].check(published).weights[0])
0.75

A release wheel also contains the program ``dphe``: run ``dphe demo`` or ``python -m dphe demo``.
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
