"""Measures ``dphe.phe`` beside the installed python-paillier (with gmpy2), in one run on one core, and prints tables.

    python bindings/python/compare.py [--quick] [--bits 2048 3072] [--rust PROGRAM]

Times are microseconds of processor time per operation: the best of some rounds, in which both libraries take turns.
Both use the same key. ``--rust`` names the example ``batch`` of the crate dphe-paillier
(``cargo build --release -p dphe-paillier --example batch --features simple``). It measures the same calls on arrays
without Python.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[[], object]

LIST = 256
ARRAY = 512


class Clock:
    """Measures calls in turns."""

    def __init__(self, rounds: int, budget: float) -> None:
        """Take the number of rounds, and the seconds of each measurement."""
        self.rounds, self.budget = rounds, budget

    def best(self, *calls: Call) -> list[float]:
        """Return the microseconds of each call in its best round."""
        found = [float("inf")] * len(calls)
        for call in calls:
            call()
        for _ in range(self.rounds):
            for i, call in enumerate(calls):
                found[i] = min(found[i], self._once(call))
        return [1e6 * seconds for seconds in found]

    def _once(self, call: Call) -> float:
        count, repeats = 0, 1
        start = time.process_time()
        while True:
            for _ in range(repeats):
                call()
            count += repeats
            elapsed = time.process_time() - start
            if elapsed >= self.budget:
                return elapsed / count
            # Reading the clock should not cost more than a hundredth of the calls between.
            if elapsed < self.budget / 100:
                repeats *= 2


class Keys:
    """One key, as an object of both libraries."""

    def __init__(self, bits: int) -> None:
        """Generate the key with ``dphe.phe``."""
        from dphe import phe as ours

        theirs = importlib.import_module("phe")
        if theirs is ours:
            raise SystemExit("error: phe is an alias of dphe.phe")
        if not importlib.import_module("phe.util").HAVE_GMP:
            raise SystemExit("error: python-paillier has no gmpy2, which makes it several times faster")
        self.ours, self.theirs = ours, theirs
        self.public, self.private = ours.generate_paillier_keypair(n_length=bits)
        self.their_public = theirs.PaillierPublicKey(self.public.n)
        self.their_private = theirs.PaillierPrivateKey(self.their_public, self.private.p, self.private.q)
        native = self.public._native
        self.backend = "none" if native is None else native.backend
        # The same modulus, read by somebody who does not know where it comes from.
        self.foreign = ours.PaillierPublicKey(self.public.n)

    def scalars(self) -> list[tuple[str, Call, Call]]:
        """Return operations on one number."""
        mine, yours = self.public, self.their_public
        a, b, f = mine.encrypt(123_456), mine.encrypt(-77), mine.encrypt(2.5)
        x, y, g = yours.encrypt(123_456), yours.encrypt(-77), yours.encrypt(2.5)
        c, d = x.ciphertext(False), y.ciphertext(False)

        def ours(ciphertext: int) -> Any:
            return self.ours.EncryptedNumber(mine, ciphertext)

        def theirs(ciphertext: int) -> Any:
            return self.theirs.EncryptedNumber(yours, ciphertext)

        large = self.public.max_int - 5
        return [
            ("encrypt an int", lambda: mine.encrypt(5), lambda: yours.encrypt(5)),
            ("encrypt a float", lambda: mine.encrypt(0.1), lambda: yours.encrypt(0.1)),
            ("decrypt", lambda: self.private.decrypt(a), lambda: self.their_private.decrypt(x)),
            (
                "decrypt a received integer",
                lambda: self.private.decrypt(ours(c)),
                lambda: self.their_private.decrypt(theirs(c)),
            ),
            ("add a number", lambda: a + b, lambda: x + y),
            (
                "add a number, as an integer",
                lambda: (a + b).ciphertext(False),
                lambda: (x + y).ciphertext(False),
            ),
            ("add two received integers", lambda: ours(c) + ours(d), lambda: theirs(c) + theirs(d)),
            ("add a plain int", lambda: a + 5, lambda: x + 5),
            ("add a plain float", lambda: f + 0.1, lambda: g + 0.1),
            ("subtract a number", lambda: a - b, lambda: x - y),
            ("multiply by 3", lambda: a * 3, lambda: x * 3),
            ("multiply by -3", lambda: a * -3, lambda: x * -3),
            ("multiply by 1000003", lambda: a * 1_000_003, lambda: x * 1_000_003),
            ("multiply by a float", lambda: f * 0.1, lambda: g * 0.1),
            ("multiply by a number as long as n", lambda: a * large, lambda: x * large),
        ]

    def lists(self) -> list[tuple[str, Call, Call, int]]:
        """Return operations on lists, and how many numbers ours handles per call. Theirs handles one."""
        values = list(range(LIST))
        numbers = self.public.encrypt_many(values)
        x, y = self.their_public.encrypt(1), self.their_public.encrypt(2)

        def encrypt() -> object:
            return self.their_public.encrypt(5)

        def decrypt() -> object:
            return self.their_private.decrypt(x)

        integers = [number.ciphertext(False) for number in numbers]

        def sum_received() -> object:
            return self.ours.sum_of([self.ours.EncryptedNumber(self.public, integer) for integer in integers])

        def add_received() -> object:
            return self.theirs.EncryptedNumber(self.their_public, integers[0]) + y

        return [
            ("encrypt a list, own key", lambda: self.public.encrypt_many(values), encrypt, LIST),
            ("encrypt a list, foreign key", lambda: self.foreign.encrypt_many(values[:64]), encrypt, 64),
            ("encrypt one by one, foreign key", lambda: self.foreign.encrypt(5), encrypt, 1),
            ("decrypt a list", lambda: self.private.decrypt_many(numbers), decrypt, LIST),
            ("sum of a list", lambda: self.ours.sum_of(numbers), lambda: x + y, LIST - 1),
            ("sum of a list of received integers", sum_received, add_received, LIST - 1),
        ]


def arrays(clock: Clock, bits: int, program: Path | None) -> None:
    """Print the times of calls on arrays, beside those of the same calls in Rust if its program is there."""
    import numpy as np
    from dphe.paillier import DecryptionKey

    key = DecryptionKey.generate(bits).encryption_key
    values = np.arange(ARRAY)
    array = key.encrypt(values)
    names = ("encrypt", "add")
    mine, rust = [float("inf")] * 2, [float("inf")] * 2
    for _ in range(clock.rounds):
        single = Clock(1, clock.budget)
        times = single.best(lambda: key.encrypt(values, threads=1), lambda: array.add(array, threads=1))
        mine = [min(best, time / ARRAY) for best, time in zip(mine, times, strict=True)]
        if program is not None:
            output = subprocess.run(
                [program, str(bits), str(ARRAY), str(clock.budget)],
                check=True,
                capture_output=True,
                text=True,
            )
            rust = [min(best, float(word)) for best, word in zip(rust, output.stdout.split(), strict=True)]
    print(f"\n| {bits} bits, arrays of {ARRAY} | Python | Rust | ratio |\n| --- | ---: | ---: | ---: |")
    for name, ours, theirs in zip(names, mine, rust, strict=True):
        compared = f"{theirs:.3f} | {ours / theirs:.3f}" if program is not None else "not measured | "
        print(f"| {name} | {ours:.3f} | {compared} |")


def row(name: str, ours: float, theirs: float) -> None:
    """Print a row of a table."""
    print(f"| {name} | {ours:,.1f} | {theirs:,.1f} | {theirs / ours:.2f} |", flush=True)


def main() -> int:
    """Measure and print."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--bits", type=int, nargs="+", default=[2048, 3072], choices=[2048, 3072, 4096])
    parser.add_argument("--rust", type=Path, help="the example `batch` of the crate dphe-paillier")
    options = parser.parse_args()
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    clock = Clock(2, 0.05) if options.quick else Clock(5, 0.3)
    slower = []
    for bits in options.bits:
        keys = Keys(bits)
        backend = keys.backend
        print(
            f"\n{_processor()}, back end {backend}, load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}"
        )
        print(f"\n| {bits} bits | dphe.phe | phe | phe / dphe.phe |\n| --- | ---: | ---: | ---: |")
        for name, mine, yours in keys.scalars():
            ours, theirs = clock.best(mine, yours)
            row(name, ours, theirs)
            if ours > theirs:
                slower.append(f"{name} ({bits} bits)")
        for name, mine, yours, count in keys.lists():
            ours, theirs = clock.best(mine, yours)
            row(name, ours / count, theirs)
        arrays(clock, bits, options.rust)
    print("\nslower than python-paillier: " + (", ".join(slower) or "nothing"))
    return 0


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    fields = (
        dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        if info.exists()
        else {}
    )
    named = {key.strip(): value.strip() for key, value in fields.items()}
    family = f" (family {named['cpu family']} model {named['model']})" if "cpu family" in named else ""
    return named.get("model name", platform.processor()) + family


if __name__ == "__main__":
    sys.exit(main())
