"""Arithmetic on encrypted arrays, their bytes, and the inputs that are refused."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import dphe
import numpy as np
import pytest
from dphe import _core
from dphe.errors import DpheError, InvalidValue, KeyMismatch, Refused
from dphe.paillier import DecryptionKey, EncryptedArray, EncryptionKey, Packing, Pool


def test_integers_of_all_dtypes_are_encrypted(secret: DecryptionKey, key: EncryptionKey) -> None:
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
        info = np.iinfo(dtype)
        values = np.array([info.min, 0, 1, min(info.max, (1 << 63) - 1)], dtype=dtype)
        assert secret.decrypt(key.encrypt(values)).tolist() == [int(value) for value in values], dtype
    assert secret.decrypt(key.encrypt(5)).shape == ()
    assert secret.decrypt(key.encrypt(np.array([], np.int64))).shape == (0,)


def test_large_integers_are_encrypted_as_objects(secret: DecryptionKey, key: EncryptionKey) -> None:
    large = [key.n // 2, -(key.n // 2), 1 << 63, -(1 << 63), 0]
    encrypted = key.encrypt(np.array(large, dtype=object))
    assert secret.decrypt_integers(encrypted).tolist() == large
    assert secret.decrypt_integers(key.encrypt([1 << 70, -(1 << 64)])).tolist() == [1 << 70, -(1 << 64)]
    assert secret.decrypt_integers(key.encrypt([(1 << 64) - 1, -1])).tolist() == [(1 << 64) - 1, -1]
    with pytest.raises(InvalidValue, match="does not fit into 64 bits"):
        secret.decrypt(encrypted)
    with pytest.raises(InvalidValue, match="half the modulus") as caught:
        key.encrypt([key.n // 2 + 1])
    assert caught.value.code == "plaintext_range"


def test_operators_match_numpy(secret: DecryptionKey, key: EncryptionKey) -> None:
    generator = np.random.default_rng(7)
    a, b = generator.integers(-1000, 1000, (2, 3, 4))
    x, y = key.encrypt(a), key.encrypt(b)
    cases: list[tuple[EncryptedArray, Any]] = [
        (x + y, a + b),
        (x - y, a - b),
        (-x, -a),
        (x + b, a + b),
        (b + x, a + b),
        (b - x, b - a),
        (x - b, a - b),
        (x + 7, a + 7),
        (7 - x, 7 - a),
        (x * 3, a * 3),
        (-2 * x, a * -2),
        (x * b, a * b),
        (x * 0, a * 0),
        (x[1], a[1]),
        (x[:, ::-2], a[:, ::-2]),
        (x[a > 0], a[a > 0]),
        (x.sum(), a.sum()),
        (x.sum(axis=0), a.sum(axis=0)),
        (x.sum(axis=-1), a.sum(axis=-1)),
        (x.reshape(2, -1), a.reshape(2, -1)),
        (x.ravel(), a.ravel()),
        (x + y[0], a + b[0]),
        (x * b[0], a * b[0]),
        (x + b[0], a + b[0]),
    ]
    for index, (encrypted, expected) in enumerate(cases):
        assert np.array_equal(secret.decrypt(encrypted), expected), index
        assert encrypted.shape == np.shape(expected), index


def test_fractions_keep_their_scale(secret: DecryptionKey, key: EncryptionKey) -> None:
    values = np.array([0.1, -1.26, 1e6, 0.0])
    encrypted = key.encrypt(values, scale_bits=20)
    assert np.array_equal(secret.decrypt(encrypted), np.rint(values * 2**20) / 2**20)
    assert np.array_equal(
        secret.decrypt(key.encrypt(np.float32(values), scale_bits=3)), [0.125, -1.25, 1e6, 0.0]
    )
    assert secret.decrypt(encrypted * -2 + 0.5)[2] == -2e6 + 0.5
    assert secret.decrypt(encrypted - np.array([1, 2, 3, 4]))[3] == -4.0
    assert secret.decrypt(key.encrypt([1, 2], scale_bits=4) + 1).tolist() == [2.0, 3.0]
    with pytest.raises(TypeError, match="scale_bits"):
        key.encrypt(values)
    with pytest.raises(InvalidValue, match="number 1 is not finite"):
        key.encrypt([0.0, float("nan")], scale_bits=8)
    with pytest.raises(InvalidValue, match="fractional bits"):
        encrypted + key.encrypt(values, scale_bits=21)
    with pytest.raises(TypeError, match="integers only"):
        encrypted * 0.5


def test_packed_arrays_add_up_to_their_terms(
    secret: DecryptionKey, key: EncryptionKey, other: DecryptionKey
) -> None:
    packing = key.packing(12, 4)
    values = np.arange(-200, 100).reshape(3, 100)
    x = key.encrypt(values, packing=packing)
    assert x.ciphertexts == -(-300 // packing.slots)
    assert np.array_equal(secret.decrypt(x + x - values), values)
    assert np.array_equal(secret.decrypt(x * -4), values * -4)
    assert np.array_equal(secret.decrypt_integers(x.reshape(300)), values.reshape(300))
    too_many: list[Callable[[], object]] = [lambda: x * 5, lambda: x + x + x + x + x, lambda: (x * 4) + 1]
    for refused in too_many:
        with pytest.raises(InvalidValue, match="room for 4 terms"):
            refused()
    unpacked: list[Callable[[], object]] = [
        lambda: x[0],
        lambda: x.sum(),
        lambda: x * values,
        lambda: x + key.encrypt(values),
    ]
    for refused in unpacked:
        with pytest.raises(InvalidValue, match="pack"):
            refused()
    with pytest.raises(InvalidValue, match="value 2 does not fit its slot"):
        key.encrypt([0, 1, 2048], packing=packing)
    fractions = key.encrypt([0.5, -0.25], scale_bits=4, packing=packing)
    assert secret.decrypt(fractions + fractions).tolist() == [1.0, -0.5]
    with pytest.raises(KeyMismatch):
        key.encrypt([1], packing=other.encryption_key.packing(8, 2))


def test_views_and_readonly_arrays_are_read(secret: DecryptionKey, key: EncryptionKey) -> None:
    base = np.arange(24).reshape(4, 6)
    views = [base[::2, ::-1], base.T, np.asfortranarray(base), base[1:3, 2:4], base.astype(">i4")]
    frozen = base.copy()
    frozen.setflags(write=False)
    for view in [*views, frozen]:
        assert np.array_equal(secret.decrypt(key.encrypt(view)), view)
    assert np.array_equal(secret.decrypt(key.encrypt(base) + frozen[::-1]), base + base[::-1])
    # part of a buffer, as of a message, whose numbers are at odd addresses
    unaligned = np.frombuffer(b"?" + base.tobytes(), np.uint8)[1:].view(np.int64)
    assert not unaligned.flags.aligned
    assert np.array_equal(secret.decrypt(key.encrypt(unaligned) + unaligned), 2 * base.reshape(-1))


@pytest.mark.parametrize(
    "values",
    [
        np.array([True]),
        np.array([1j]),
        np.array(["1"]),
        np.array([b"1"]),
        np.array(["2020-01-01"], "datetime64[D]"),
        [None],
        [1, "2"],
        np.array([object()]),
        np.array([True, 1], dtype=object),
        {"a": 1},
        np.ma.masked_array(np.array([1, 2]), np.array([False, True])),
        np.array([1.5]),
        [1.5, 2],
        np.array([(1, 2)], dtype="i4,i4"),
    ],
)
def test_other_dtypes_are_refused(key: EncryptionKey, values: Any) -> None:
    with pytest.raises(TypeError):
        key.encrypt(values)


def test_lists_of_different_lengths_are_refused(key: EncryptionKey) -> None:
    ragged: Any = [[1], [1, 2]]
    for refused in (lambda: key.encrypt(ragged), lambda: key.encrypt([1, 2]) + ragged):
        with pytest.raises(InvalidValue, match="different lengths"):
            refused()


def test_what_is_no_key_is_refused(key: EncryptionKey) -> None:
    array, absent = key.encrypt([1]), cast(EncryptionKey, None)
    refusals: list[Callable[[], object]] = [
        lambda: EncryptedArray.from_bytes(array.to_bytes(), absent),
        lambda: EncryptedArray.from_ints(array.to_ints(), absent),
        lambda: Packing(absent, 8, 3),
        lambda: Pool(absent),
    ]
    for refused in refusals:
        with pytest.raises(TypeError, match="not NoneType"):
            refused()


def test_shapes_that_do_not_fit_are_refused(key: EncryptionKey) -> None:
    x = key.encrypt([[1, 2, 3], [4, 5, 6]])
    refusals: list[Callable[[], object]] = [
        lambda: x + key.encrypt([1, 2]),
        lambda: x + [1, 2],
        lambda: x.reshape(5),
        lambda: x.sum(axis=2),
        lambda: x * [1, 2],
        lambda: key.sum([x, key.encrypt([1, 2, 3])]),
    ]
    for refused in refusals:
        with pytest.raises(InvalidValue) as caught:
            refused()
        assert caught.value.code == "length"
    with pytest.raises(IndexError):
        x[5]
    with pytest.raises(TypeError):
        iter(x)
    with pytest.raises(TypeError):
        bool(x)


def test_keys_cannot_be_mixed(secret: DecryptionKey, key: EncryptionKey, other: DecryptionKey) -> None:
    mine, theirs = key.encrypt([1]), other.encryption_key.encrypt([1])
    refusals: list[Callable[[], object]] = [
        lambda: mine + theirs,
        lambda: mine - theirs,
        lambda: secret.decrypt(theirs),
        lambda: secret.decrypt_integers(theirs),
        lambda: key.sum([mine, theirs]),
        lambda: key.encrypt([1], pool=other.encryption_key.pool()),
        lambda: EncryptedArray.from_bytes(theirs.to_bytes(), key),
    ]
    for refused in refusals:
        with pytest.raises(KeyMismatch) as caught:
            refused()
        assert caught.value.code == "key_id"
        assert isinstance(caught.value, ValueError)


def test_bytes_are_read_back_and_mutations_are_refused(secret: DecryptionKey, key: EncryptionKey) -> None:
    arrays = [
        key.encrypt(np.arange(6).reshape(2, 3)),
        key.encrypt(7),
        key.encrypt([0.5, 1.5], scale_bits=9),
        key.encrypt(np.arange(99), packing=key.packing(10, 6)) * 2,
    ]
    for array in arrays:
        read = EncryptedArray.from_bytes(array.to_bytes(), key)
        assert (read.shape, read.scale_bits, read.packing) == (array.shape, array.scale_bits, array.packing)
        assert np.array_equal(secret.decrypt(read), secret.decrypt(array))
        assert np.array_equal(secret.decrypt(pickle.loads(pickle.dumps(array))), secret.decrypt(array))
    data = arrays[0].to_bytes()
    for length in (0, 5, 11, 43, 60, 79, len(data) - 1):
        with pytest.raises(DpheError):
            EncryptedArray.from_bytes(data[:length], key)
    with pytest.raises(InvalidValue):
        EncryptedArray.from_bytes(data + b"\0" * 512, key)
    # headers that promise more than there is
    generator = random.Random(3)
    for position in range(80):
        mutated = bytearray(data)
        mutated[position] ^= 1 << generator.randrange(8)
        try:
            EncryptedArray.from_bytes(bytes(mutated), key)
        except DpheError:
            continue
        assert 43 <= position < 63, position
    zeros = bytearray(data)
    zeros[-512:] = bytes(512)
    with pytest.raises(InvalidValue, match="ciphertext 5 is out of range") as caught:
        EncryptedArray.from_bytes(bytes(zeros), key)
    assert caught.value.code == "ct_range"
    with pytest.raises(TypeError):
        EncryptedArray.from_bytes("text", key)  # type: ignore[arg-type]


def test_integers_from_elsewhere_are_checked(secret: DecryptionKey, key: EncryptionKey) -> None:
    array = key.encrypt([1, -2])
    integers = array.to_ints()
    assert secret.decrypt(EncryptedArray.from_ints(integers, key)).tolist() == [1, -2]
    for wrong in (0, -1, key.n**2, key.n, 1 << 9000):
        with pytest.raises(InvalidValue):
            EncryptedArray.from_ints([integers[0], wrong], key)
    for wrong_type in (1.0, "1", None, True):
        with pytest.raises(TypeError):
            EncryptedArray.from_ints([wrong_type], key)  # type: ignore[list-item]


def test_foreign_keys_have_textbook_noise(secret: DecryptionKey, key: EncryptionKey) -> None:
    foreign = EncryptionKey.from_modulus(key.n)
    assert foreign.noise == "textbook"
    assert foreign != key
    encrypted = foreign.encrypt([5, -6])
    assert encrypted.to_ints() != foreign.encrypt([5, -6]).to_ints()
    assert secret.decrypt(EncryptedArray.from_ints(encrypted.to_ints(), key)).tolist() == [5, -6]
    pool = foreign.pool()
    pool.refill(2)
    assert secret.decrypt(
        EncryptedArray.from_ints(foreign.encrypt([7], pool=pool).to_ints(), key)
    ).tolist() == [7]
    for wrong in (0, -5, 15, key.n + 1, key.n >> 1, 1 << 5000, (1 << 2047) + 1):
        with pytest.raises(InvalidValue):
            EncryptionKey.from_modulus(wrong)
    for wrong_type in (1.5, "n", True, None):
        with pytest.raises(TypeError):
            EncryptionKey.from_modulus(wrong_type)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="noise"):
        EncryptionKey.from_modulus(key.n, noise="loud")  # type: ignore[arg-type]


def test_sums_take_arrays_and_bytes(secret: DecryptionKey, key: EncryptionKey) -> None:
    arrays = [key.encrypt([i, -i]) for i in range(5)]
    assert secret.decrypt(key.sum(arrays)).tolist() == [10, -10]
    assert secret.decrypt(key.sum(array.to_bytes() for array in arrays)).tolist() == [10, -10]
    with pytest.raises(InvalidValue):
        key.sum([])


@pytest.mark.parametrize("threads", [0, -1, 1 << 30])
def test_bad_thread_counts_are_refused(secret: DecryptionKey, key: EncryptionKey, threads: int) -> None:
    array = key.encrypt([1])
    calls: list[Callable[[], object]] = [
        lambda: key.encrypt([1], threads=threads),
        lambda: secret.decrypt(array, threads=threads),
        lambda: array.add(array, threads=threads),
        lambda: array.to_bytes(threads=threads),
        lambda: key.pool().refill(1, threads=threads),
        lambda: DecryptionKey.generate(2048, threads=threads),
    ]
    for call in calls:
        with pytest.raises(InvalidValue):
            call()
    with pytest.raises(TypeError):
        key.encrypt([1], threads=1.5)  # type: ignore[arg-type]
    assert secret.decrypt(key.encrypt([1] * 70, threads=2), threads=2).sum() == 70


def test_secret_keys_are_redacted_and_refuse_pickling(secret: DecryptionKey, key: EncryptionKey) -> None:
    p, q = secret._native.factors()
    for text in (repr(secret), str(secret), repr(secret._native), f"{secret}"):
        assert p.hex() not in text
        assert str(int.from_bytes(q, "big")) not in text
    pool = key.pool()
    attempts: list[Callable[[Any], object]] = [pickle.dumps, copy.copy, copy.deepcopy]
    for attempt in attempts:
        for held in (secret, pool, secret._native, pool._native):
            with pytest.raises(TypeError):
                attempt(held)
    assert not hasattr(secret, "__dict__")
    assert pickle.loads(pickle.dumps(key)) == key
    assert copy.deepcopy(key) == key
    assert len({key, EncryptionKey.from_bytes(key.to_bytes())}) == 1


def test_sealed_keys_need_their_passphrase(secret: DecryptionKey) -> None:
    passphrase = bytearray(b"correct horse")
    sealed = secret.seal(passphrase)
    assert passphrase == bytes(13)
    opened = DecryptionKey.open(sealed, b"correct horse")
    assert opened.encryption_key == secret.encryption_key
    with pytest.raises(Refused) as caught:
        DecryptionKey.open(sealed, b"wrong")
    assert caught.value.code == "key_encrypted"
    for refused in (lambda: secret.seal("text"), lambda: DecryptionKey.open(sealed, "text")):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="passphrase"):
            refused()
    for short in (b"", b"eleven char", bytearray(11)):
        with pytest.raises(InvalidValue, match="shorter than 12") as too_short:
            secret.seal(short)
        assert too_short.value.code == "passphrase"
    for wrong in (
        b"",
        sealed[:-1],
        sealed + b"\0",
        secret.encryption_key.to_bytes(),
        b"dphe-secret-key\n" * 30,
    ):
        with pytest.raises(DpheError):
            DecryptionKey.open(wrong, b"correct horse")
    unprotected = secret.to_unprotected_bytes()
    assert DecryptionKey.from_unprotected_bytes(unprotected).encryption_key == secret.encryption_key
    for wrong in (b"", unprotected[:-2], unprotected + b"\0\0", unprotected[:-1] + b"\x02", sealed):
        with pytest.raises(DpheError):
            DecryptionKey.from_unprotected_bytes(wrong)


def test_pools_are_used_once_and_stay_full_after_errors(secret: DecryptionKey, key: EncryptionKey) -> None:
    pool = key.pool()
    with pytest.raises(InvalidValue, match="holds 0") as caught:
        key.encrypt([1], pool=pool)
    assert caught.value.code == "pool_empty"
    pool.refill(5)
    array = key.encrypt([1, 2], pool=pool)
    assert (len(pool), secret.decrypt(array).tolist()) == (3, [1, 2])
    with pytest.raises(InvalidValue):
        key.encrypt([1] * 4, pool=pool)
    assert len(pool) == 3
    pool.clear()
    assert len(pool) == 0
    for wrong in (-1, 1 << 60):
        with pytest.raises(InvalidValue):
            pool.refill(wrong)


def _noise(pool: Any, key: EncryptionKey, sender: Any) -> None:
    size = len(pool)
    pool.refill(2)
    sender.send((size, key.encrypt([0, 0], pool=pool).to_ints(), key.encrypt([0]).to_ints()))
    sender.close()


def test_a_forked_child_never_repeats_noise(key: EncryptionKey) -> None:
    key.encrypt(np.zeros(300, np.int64))  # threads have run before
    pool = key.pool()
    pool.refill(8)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_noise, args=(pool, key, sender))
    child.start()
    size, from_pool, fresh = receiver.recv()
    child.join()
    assert child.exitcode == 0
    assert size == 0
    mine = key.encrypt([0] * 8, pool=pool).to_ints() + key.encrypt([0]).to_ints()
    assert not set(mine) & set(from_pool + fresh)
    assert len(set(mine + from_pool + fresh)) == 12


_INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
from dphe.paillier import DecryptionKey
data = bytes.fromhex(sys.argv[1])
secret = DecryptionKey.from_unprotected_bytes(data)
key = secret.encryption_key
big = key.encrypt(np.arange(2000))
calls = {
    "encrypt": lambda: key.encrypt(np.zeros(10**6, np.int64)),
    "decrypt": lambda: [secret.decrypt(big) for _ in range(100)],
    "multiply": lambda: [big * (key.n // 3) for _ in range(100)],
    "generate": lambda: [DecryptionKey.generate(4096) for _ in range(100)],
}
def interrupt():
    time.sleep(0.5)
    times.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)
for name, call in calls.items():
    times = []
    threading.Thread(target=interrupt).start()
    try:
        call()
    except KeyboardInterrupt:
        print(name, time.perf_counter() - times[0])
"""


def test_ctrl_c_ends_long_calls(secret: DecryptionKey) -> None:
    arguments = [sys.executable, "-c", _INTERRUPTED, secret.to_unprotected_bytes().hex()]
    output = subprocess.run(arguments, capture_output=True, text=True, timeout=100, check=True).stdout
    times = {line.split()[0]: float(line.split()[1]) for line in output.splitlines()}
    print("seconds until Ctrl-C took effect:", times)
    assert set(times) == {"encrypt", "decrypt", "multiply", "generate"}


def test_other_threads_run_during_a_call(key: EncryptionKey) -> None:
    ticks, stop = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    key.encrypt(np.zeros(3000, np.int64), threads=1)
    stop.set()
    thread.join()
    assert ticks > 10


def test_an_exception_in_progress_ends_the_search() -> None:
    seen: list[tuple[int, int]] = []

    def progress(searched: int, expected: int) -> None:
        seen.append((searched, expected))
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        DecryptionKey.generate(4096, progress=progress)
    assert len(seen) == 1
    for bits in (0, 512, 2047, 5000):
        with pytest.raises(InvalidValue) as caught:
            DecryptionKey.generate(bits)
        assert caught.value.code == "key_size"


def test_keys_are_generated(key: EncryptionKey) -> None:
    secret = DecryptionKey.generate(2048, noise="fast")
    assert secret.encryption_key.noise == "fast"
    assert secret.decrypt(secret.encryption_key.encrypt([3])).tolist() == [3]


def test_a_panic_becomes_a_runtime_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="this is a bug in dphe"):
        _core.panic_for_test()
    assert "asked for by a test" in capfd.readouterr().err


def test_constructors_name_the_way_to_a_key() -> None:
    for type_ in (EncryptionKey, DecryptionKey, EncryptedArray):
        with pytest.raises(TypeError, match="use "):
            type_()


def test_errors_are_pickled_with_their_codes() -> None:
    error = pickle.loads(pickle.dumps(InvalidValue("wrong", "value", 3)))
    assert (type(error), str(error), error.code, error.culprit) == (InvalidValue, "wrong", "value", 3)


@pytest.mark.timeout(600)
def test_memory_stays_flat_over_many_calls(key: EncryptionKey) -> None:
    """``DPHE_BOUNDARY_CALLS`` makes the test longer. Each round crosses into Rust eight times."""
    rounds = int(os.environ.get("DPHE_BOUNDARY_CALLS", "8000")) // 8
    array, more, data = key.encrypt([1, 2, 3]), [1, 2, 3], key.to_bytes()
    pool = _core.Pool(key._native)

    def rss() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def work(count: int) -> None:
        for _ in range(count):
            total = (array + array) + more
            total[1:].to_bytes()
            assert EncryptionKey.__eq__(array.key, key)
            with pytest.raises(InvalidValue):
                key.encrypt([1], pool=key.pool())
            assert len(pool) == 0
            assert len(data) == len(key._native.to_bytes())

    work(max(300, rounds // 20))
    before = rss()
    work(rounds)
    growth = rss() - before
    print(f"{8 * rounds} calls, {growth} bytes more")
    assert growth < 2 << 20


def test_the_version_is_that_of_the_workspace() -> None:
    assert dphe.__version__ == _core.version()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
