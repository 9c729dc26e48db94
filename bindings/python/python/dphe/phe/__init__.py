"""A drop-in for python-paillier: ``from dphe import phe``, or :func:`install` once and then ``import phe``.

**This module shows the factors of secret keys, as python-paillier does.** Nothing can wipe Python's integers, and its
arithmetic below 2048 bits takes time that depends on secrets. New programs use :mod:`dphe.paillier`.

Keys of 2048, 3072 and 4096 bits compute in Rust. Keys of other lengths compute with Python's integers; below 2048 bits
they are insecure, and making one warns with :class:`dphe.InsecureKeyWarning`. Numbers, keys and ciphertexts are those
of python-paillier, and both read each other's. :func:`encrypt_many`, :func:`decrypt_many` and :func:`sum_of` handle
whole lists, many times faster than one number at a time.

>>> from dphe import phe
>>> public_key, private_key = phe.generate_paillier_keypair(n_length=2048)
>>> number = public_key.encrypt(3.5) * 2 - 1
>>> private_key.decrypt(number)
6.0
"""

from __future__ import annotations

import sys

from dphe.phe import encoding, paillier, util
from dphe.phe.encoding import EncodedNumber
from dphe.phe.paillier import (
    DEFAULT_KEYSIZE,
    EncryptedNumber,
    PaillierPrivateKey,
    PaillierPrivateKeyring,
    PaillierPublicKey,
    decrypt_many,
    encrypt_many,
    generate_paillier_keypair,
    sum_of,
)

__all__ = [
    "DEFAULT_KEYSIZE",
    "EncodedNumber",
    "EncryptedNumber",
    "PaillierPrivateKey",
    "PaillierPrivateKeyring",
    "PaillierPublicKey",
    "decrypt_many",
    "encoding",
    "encrypt_many",
    "generate_paillier_keypair",
    "install",
    "paillier",
    "sum_of",
    "util",
]


def install() -> None:
    """Make ``import phe`` load this module from now on, in this process."""
    this = sys.modules[__name__]
    for name, module in (("", this), (".paillier", paillier), (".encoding", encoding), (".util", util)):
        loaded = sys.modules.get("phe" + name)
        if loaded is not None and loaded is not module:
            raise ImportError("another `phe` is loaded already; call `install` before anything imports it")
    for name, module in (("", this), (".paillier", paillier), (".encoding", encoding), (".util", util)):
        sys.modules["phe" + name] = module
