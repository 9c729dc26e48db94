"""Keys that the tests share. Generating one takes seconds, so one is written here. It protects nothing."""

from __future__ import annotations

import signal

import pytest
from dphe.paillier import DecryptionKey, EncryptionKey

# A shell ignores Ctrl-C in what it starts in the background, and programs that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# the noise mode and two safe primes of 1024 bits
_KEY = (
    "00eb470f680f930962e5e20d0f306dfff8fb598e9353b8cf24123a95d0f8b552ffb79b9af08659937c005c93e60f70be"
    "a4987acbcb8053591d1f19dbb375ee96ec14a20160f4c1964299eba03b63ec640aadfee0c744b7d9bc6eab02e595d715"
    "ef871dad1558224dd6a22737bdc0c71f2222675b52e1628ecfb22ddbbc3b6a9253fbb234719a5bf40a900fe933d7cf44"
    "642926ef61f40a424b312bb6acfe3758a8efc190498ca4e789cd0e6ceadb955363057cb0d10136328c771408695ccae3"
    "04f9c66679eee5320c7f88ab52643f1ed881bb40f9bb9678dd618b05d6971e1b309d7a9ae3c608ab2e8d2cb37fcc1611"
    "6324f24253e0caa376961971f50bd8699b"
)


@pytest.fixture(scope="session")
def secret() -> DecryptionKey:
    return DecryptionKey.from_unprotected_bytes(b"dphe-unprotected-secret-key\n\x01" + bytes.fromhex(_KEY))


@pytest.fixture(scope="session")
def key(secret: DecryptionKey) -> EncryptionKey:
    return secret.encryption_key


@pytest.fixture(scope="session")
def other() -> DecryptionKey:
    """A key of the same length with another noise mode, so with another identifier."""
    data = b"dphe-unprotected-secret-key\n\x01" + bytes([1]) + bytes.fromhex(_KEY)[1:]
    return DecryptionKey.from_unprotected_bytes(data)
