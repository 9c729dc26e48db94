"""The parties of the comparison: our program and the peers, each measured in rounds.

A party has a `name`, and `start()` makes it ready or raises `NotAvailable`.
`measure(budget_s)` does one round and returns the best time of each operation.
"""

import json
import os
import select
import subprocess

from preparation import CACHE, HERE, NotAvailable, first_error

# Key generation is a search that can take long. Nothing else comes near this limit.
PATIENCE_S = 300

ENVIRONMENT = {
    **os.environ,
    # The process is bound to one core, so more threads would only slow each other down.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
}
# Our program chooses its back end itself unless a party names one.
ENVIRONMENT.pop("DPHE_BACKEND", None)


class Worker:
    """A Python peer, measured by a process that keeps its key from round to round."""

    def __init__(self, name, bits, python):
        self.name, self.bits, self.python = name, bits, python
        self.process = None

    def start(self):
        CACHE.mkdir(parents=True, exist_ok=True)
        log = CACHE / f"{self.name}-{self.bits}.log"
        with open(log, "w") as errors:
            self.process = subprocess.Popen(
                [str(self.python), "-B", str(HERE / "worker.py"), self.name, str(self.bits)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=ENVIRONMENT,
            )
        return self.answer()

    def measure(self, budget_s):
        try:
            print(json.dumps({"budget_s": budget_s}), file=self.process.stdin, flush=True)
        except BrokenPipeError as error:
            raise NotAvailable("the worker ended") from error
        return self.answer()

    def answer(self):
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.stop()
            raise NotAvailable("no answer" if not ready else "the worker ended")
        message = json.loads(line)
        if "error" in message:
            raise NotAvailable(message["error"])
        return message

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()


class Program:
    """A party that is a program: one run is one round."""

    def __init__(self, name, bits, path):
        self.name, self.bits, self.path = name, bits, path

    def start(self):
        return {}

    def stop(self):
        pass

    def json_from(self, arguments, environment=ENVIRONMENT):
        try:
            done = subprocess.run(
                [str(self.path), *arguments],
                capture_output=True,
                text=True,
                env=environment,
                timeout=PATIENCE_S,
            )
        except OSError as error:
            raise NotAvailable(f"does not start: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise NotAvailable("no answer") from error
        if done.returncode != 0:
            raise NotAvailable(first_error(done.stderr))
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError as error:
            raise NotAvailable("its output is not JSON") from error


class FastPaillier(Program):
    def start(self):
        return {"version": "fast-paillier 0.3.2, num-bigint"}

    def measure(self, budget_s):
        result = self.json_from([str(self.bits), str(round(budget_s * 1000))])
        times = {
            operation: {"us": result[f"{operation}_us"]}
            for operation in ("encrypt", "add", "decrypt")
        }
        return {**times, "ciphertext_bytes": result["ciphertext_bytes"]}


class Ours(Program):
    """`dphe bench paillier` in one mode, with the back end it chooses or a given one."""

    TIMES = ("encrypt", "encrypt_pooled", "add", "mul", "pack", "decrypt")

    def __init__(self, name, bits, path, mode, backend=None):
        super().__init__(name, bits, path)
        self.mode, self.backend = mode, backend

    def measure(self, _budget_s):
        environment = dict(ENVIRONMENT)
        if self.backend:
            environment["DPHE_BACKEND"] = self.backend
        result = self.json_from(
            ["bench", "paillier", "--bits", str(self.bits), "--noise", self.mode]
            + ["--threads", "1", "--format", "json"],
            environment,
        )
        self.check(result)
        times = {name: {"us": result[f"{name}_us"]} for name in self.TIMES}
        return {
            **times,
            "backend": result["backend"],
            "keygen_s": result["keygen_s"],
            "ciphertext_bytes": result.get("ciphertext_bytes", 2 * self.bits // 8),
        }

    def check(self, result):
        """Accepts a result only if the program measured what it was asked to measure."""
        asked = {"bits": self.bits, "mode": self.mode, "threads": 1}
        if self.backend:
            asked["backend"] = self.backend
        missing = [f"{name}_us" for name in self.TIMES if f"{name}_us" not in result]
        if missing or "backend" not in result or "keygen_s" not in result:
            raise NotAvailable(f"its output lacks {', '.join(missing) or 'a key'}")
        for key, value in asked.items():
            if result.get(key) != value:
                raise NotAvailable(f"asked for {key} {value}, it reports {result.get(key)}")


class OursPacked(Program):
    """`dphe bench packing`: the dense vector of the tenseal peers, in 32-bit slots."""

    ARGUMENTS = (
        "bench packing --values 206848 --slot-bits 32 --bits 2048 "
        "--noise fast --threads 1 --format json"
    ).split()

    def measure(self, _budget_s):
        result = self.json_from(self.ARGUMENTS)
        keys = ("values", "ciphertexts", "bytes", "cpu_s")
        missing = [key for key in keys if key not in result]
        if missing:
            raise NotAvailable(f"its output lacks {', '.join(missing)}")
        return {"packed": {key: result[key] for key in keys}}
