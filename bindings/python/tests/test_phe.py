"""``dphe.phe`` beside the installed python-paillier: both read what the other writes. Its own tests run in
``phe_suite.py``."""

from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import dphe
import pytest
from dphe import phe
from dphe.errors import InsecureKeyWarning
from dphe.paillier import DecryptionKey

_VALUES = [0, 1, -1, 12345678901234567890, -(1 << 200), 3.5, -0.1, 1e-30, -1e30, 2**-60]


@pytest.fixture(scope="module")
def theirs() -> ModuleType:
    module = importlib.import_module("phe")
    assert module is not phe
    return module


@pytest.fixture(scope="module")
def factors(secret: DecryptionKey) -> tuple[int, int]:
    p, q = (int.from_bytes(factor, "big") for factor in secret._native.factors())
    return p, q


@pytest.fixture(scope="module")
def pair(factors: tuple[int, int]) -> tuple[phe.PaillierPublicKey, phe.PaillierPrivateKey]:
    p, q = factors
    public_key = phe.PaillierPublicKey(p * q)
    return public_key, phe.PaillierPrivateKey(public_key, p, q)


def test_both_directions(theirs: Any, pair: Any, factors: tuple[int, int]) -> None:
    public_key, private_key = pair
    their_public = theirs.PaillierPublicKey(public_key.n)
    their_private = theirs.PaillierPrivateKey(their_public, *factors)
    for value in _VALUES:
        mine = public_key.encrypt(value)
        read = theirs.EncryptedNumber(their_public, mine.ciphertext(), mine.exponent)
        assert their_private.decrypt(read) == value
        other = their_public.encrypt(value)
        assert other.exponent == mine.exponent
        taken = phe.EncryptedNumber(public_key, other.ciphertext(), other.exponent)
        assert private_key.decrypt(taken) == value
        total = taken + mine * 2 - 1
        expected = their_private.decrypt(read + other * 2 - 1)
        assert private_key.decrypt(total) == expected
        assert total.exponent == (read + other * 2 - 1).exponent


def test_lists_match_single_numbers(pair: Any) -> None:
    public_key, private_key = pair
    numbers = phe.encrypt_many(public_key, _VALUES)
    assert phe.decrypt_many(private_key, numbers) == _VALUES
    assert [private_key.decrypt(number) for number in numbers] == _VALUES
    assert private_key.decrypt(phe.sum_of(numbers[:5])) == sum(_VALUES[:5])
    assert phe.encrypt_many(public_key, []) == []
    with pytest.raises(ValueError, match="at least one"):
        phe.sum_of([])


def test_short_keys_compute_in_python_and_warn() -> None:
    for bits in (8, 9, 16, 64, 257):
        with pytest.warns(InsecureKeyWarning):
            public_key, private_key = phe.generate_paillier_keypair(n_length=bits)
        assert public_key.n.bit_length() == bits
        assert private_key.decrypt(public_key.encrypt(3) + 4) == 7
        numbers = phe.encrypt_many(public_key, [1, 2])
        assert phe.decrypt_many(private_key, numbers) == [1, 2]


def test_keys_and_numbers_are_pickled_and_copied(pair: Any) -> None:
    public_key, private_key = pair
    number = public_key.encrypt(2.5)
    for copied in (pickle.loads(pickle.dumps(number)), copy.deepcopy(number)):
        assert private_key.decrypt(copied + number) == 5.0
    assert pickle.loads(pickle.dumps(private_key)) == private_key
    assert hash(pickle.loads(pickle.dumps(public_key))) == hash(public_key)
    assert str(private_key.p) not in repr(private_key)


def test_own_and_read_keys_of_one_modulus_mix() -> None:
    public_key, private_key = phe.generate_paillier_keypair(n_length=2048)
    again = phe.PaillierPublicKey(public_key.n)
    total = public_key.encrypt(1) + again.encrypt(2)
    assert private_key.decrypt(total) == 3
    assert private_key.decrypt(again.encrypt(2) + public_key.encrypt(1)) == 3
    assert phe.decrypt_many(private_key, [total, again.encrypt(4)]) == [3, 4]
    assert public_key.encrypt(1).ciphertext() != public_key.encrypt(1).ciphertext()


def test_received_integers_compute_like_own_numbers(theirs: Any, pair: Any) -> None:
    public_key, private_key = pair
    values = [3, -4, 0, 10**30]
    ciphertexts = phe.PaillierPublicKey(public_key.n).encrypt_many(values)
    received = [phe.EncryptedNumber(public_key, number.ciphertext(), 0) for number in ciphertexts]
    halves = [number * 0.5 for number in received]
    assert private_key.decrypt(phe.sum_of([*received, halves[0]])) == sum(values) + 1.5
    assert phe.decrypt_many(private_key, received) == values
    assert private_key.decrypt(received[0] - received[1]) == 7
    assert private_key.decrypt(received[1] * -(10**40)) == 4 * 10**40
    # 0 can be taken for a ciphertext, as in python-paillier. Only its decryption fails.
    with pytest.raises((ValueError, OverflowError, dphe.DpheError)):
        phe.decrypt_many(private_key, [*received, phe.EncryptedNumber(public_key, 0, 0)])
    with pytest.raises(ValueError, match="different keys"):
        phe.sum_of([received[0], phe.PaillierPublicKey(3233 * 10007).encrypt(1)])


def test_wrong_arguments_raise_what_phe_raises(pair: Any) -> None:
    public_key, private_key = pair
    number = public_key.encrypt(1)
    with pytest.raises(ValueError, match="within"):
        public_key.encrypt(public_key.n)
    with pytest.raises(TypeError):
        public_key.encrypt("1")
    with pytest.raises(TypeError):
        private_key.decrypt(5)
    with pytest.raises(NotImplementedError):
        number * number
    with pytest.raises(ValueError, match="p and q"):
        phe.PaillierPrivateKey(public_key, 3, 5)
    with pytest.raises(ValueError, match="totient"):
        phe.PaillierPrivateKey.from_totient(public_key, 12)
    overflow = public_key.encrypt(public_key.max_int) + public_key.max_int
    with pytest.raises(OverflowError):
        private_key.decrypt(overflow)


def test_errors_have_codes(pair: Any) -> None:
    public_key, private_key = pair
    number, other = public_key.encrypt(1), phe.PaillierPublicKey(3233 * 10007)
    refusals: dict[str, list[Callable[[], object]]] = {
        "key_id": [
            lambda: phe.sum_of([number, other.encrypt(1)]),
            lambda: number + other.encrypt(1),
            lambda: private_key.decrypt(other.encrypt(1)),
        ],
        "length": [lambda: phe.sum_of([])],
        "number": [lambda: public_key.encrypt(float("nan"))],
        "plaintext_range": [lambda: public_key.encrypt(public_key.n)],
        # the search for primes would never end
        "key_size": [
            lambda: phe.generate_paillier_keypair(n_length=7),
            lambda: phe.generate_paillier_keypair(n_length=-5),
        ],
    }
    for code, calls in refusals.items():
        for refused in calls:
            with pytest.raises(dphe.DpheError) as caught:
                refused()
            assert caught.value.code == code
            assert isinstance(caught.value, ValueError)
    with pytest.raises(TypeError, match="not int"):
        phe.sum_of(cast(Any, [1, 2]))


def test_install_takes_the_name_phe() -> None:
    program = (
        "from dphe import phe as ours\nours.install()\nimport phe, phe.paillier, phe.util\n"
        "from phe import encoding\nassert phe is ours and phe.util is ours.util and encoding is ours.encoding\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    late = "import phe\nfrom dphe import phe as ours\nours.install()"
    result = subprocess.run([sys.executable, "-c", late], capture_output=True, text=True)
    assert result.returncode == 1
    assert "loaded already" in result.stderr


def test_numbers_of_other_objects_of_a_key_are_still_added_after_lists(secret: DecryptionKey) -> None:
    p, q = (int.from_bytes(factor, "big") for factor in secret._native.factors())
    own = phe.PaillierPublicKey(p * q)
    private_key = phe.PaillierPrivateKey(own, p, q)
    # a key that was generated here makes its noise in another way than one that is read
    own._prepared = secret._native.encryption_key
    received = pickle.loads(pickle.dumps(own))
    integers = [own.encrypt(value).ciphertext() for value in (1, 2)]
    for work in (private_key.decrypt_many, lambda numbers: private_key.decrypt(phe.sum_of(numbers))):
        listed = [phe.EncryptedNumber(received, integer) for integer in integers]
        mixed = [own.encrypt(4), *listed]
        work(mixed)
        fresh = received.encrypt(5)
        for number, value in zip(listed, (1, 2), strict=True):
            assert private_key.decrypt(number + fresh) == value + 5
            assert private_key.decrypt(fresh + number) == value + 5
            assert private_key.decrypt(number + mixed[0]) == value + 4
            assert private_key.decrypt(mixed[0] + number) == value + 4
        assert private_key.decrypt_many(mixed) == [4, 1, 2]
