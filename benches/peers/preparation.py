"""Everything `run` needs before it can measure: the Python peers and the programs."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / "target" / "peers"

# fate_utils has wheels for this version only.
PREFERRED_PYTHON = "python3.11"


class NotAvailable(Exception):
    """A party cannot take part. The message is the reason that the report shows."""


def python_with_peers():
    """Returns the interpreter of a virtual environment that holds the pinned peers.

    A peer that cannot be installed is left out; its worker then fails to import it.
    """
    requirements = HERE / "requirements.txt"
    base = base_python()
    environment = CACHE / "venv"
    python = environment / "bin" / "python"
    stamp = environment / "installed"
    wanted = hashlib.sha256(requirements.read_bytes() + base.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python

    say("making the Python environment")
    shutil.rmtree(environment, ignore_errors=True)
    environment.parent.mkdir(parents=True, exist_ok=True)
    checked([base, "-m", "venv", str(environment)], "no virtual environment")
    if install(python, requirements):
        stamp.write_text(wanted)  # only a complete environment is kept
    return python


def base_python():
    for candidate in (os.environ.get("PEERS_PYTHON"), PREFERRED_PYTHON):
        if candidate and works([candidate, "-c", "import venv"]):
            return candidate
    return sys.executable


def install(python, requirements):
    """Returns whether everything is installed. One bad peer does not exclude the others."""
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if works([*pip, "-r", str(requirements)]):
        return True
    lines = requirements.read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    results = [works([*pip, pin]) for pin in pins]
    for pin, installed in zip(pins, results):
        if not installed:
            say(f"could not install {pin}")
    return all(results)


def our_program():
    """Returns our program, which is built here unless DPHE_BIN names one."""
    given = os.environ.get("DPHE_BIN")
    if given:
        return Path(given)
    say("building dphe")
    build = ["cargo", "build", "--release", "--package", "dphe-cli"]
    checked(build, "does not build", cwd=ROOT)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return ROOT / target / "release" / "dphe"


def fast_paillier_program():
    say("building the fast-paillier peer")
    target = CACHE / "fast-paillier"
    build = ["cargo", "build", "--release", "--locked", "--target-dir", str(target)]
    checked(build, "does not build", cwd=HERE / "fast-paillier")
    return target / "release" / "peer-fast-paillier"


def works(command):
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def checked(command, complaint, **options):
    try:
        done = subprocess.run(command, capture_output=True, text=True, **options)
    except OSError as error:
        raise NotAvailable(f"{complaint}: {error.strerror}") from error
    if done.returncode != 0:
        raise NotAvailable(f"{complaint}: {first_error(done.stderr)}")


def first_error(text):
    """Returns the line that names the cause, without the paths and hints that follow it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines[-1:] or ["no message"])[0][:160]


def say(message):
    print(message, file=sys.stderr, flush=True)
