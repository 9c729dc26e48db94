"""Runs the examples in docstrings, on pages of ``docs`` and in ``examples/python``, and prints how many passed.

A script of ``examples/python`` says what it prints in lines that begin with ``# >``. In docstrings and pages, keys of
one length are generated once, because each takes seconds.
"""

from __future__ import annotations

import difflib
import doctest
import functools
import importlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from dphe import phe
from dphe.paillier import DecryptionKey

MODULES = (
    "dphe",
    "dphe.errors",
    "dphe.flower",
    "dphe.flower.client",
    "dphe.flower.key_generator",
    "dphe.flower.kits",
    "dphe.flower.server",
    "dphe.layout",
    "dphe.paillier",
    "dphe.phe",
    "dphe.phe.encoding",
    "dphe.phe.paillier",
    "dphe.phe.util",
    "dphe.roles",
    "dphe.sklearn",
    "dphe.torch",
    "dphe.vectors",
)


def share_keys() -> None:
    """Make every call for a new key return the same one."""
    mock.patch.object(DecryptionKey, "generate", functools.cache(DecryptionKey.generate)).start()
    pair = functools.cache(phe.paillier.generate_paillier_keypair)
    for module in (phe, phe.paillier):
        mock.patch.object(module, "generate_paillier_keypair", pair).start()


def run_docstrings() -> tuple[int, int]:
    """Run the examples of all modules. Return how many ran, and how many failed."""
    ran = failed = 0
    for name in MODULES:
        result = doctest.testmod(importlib.import_module(name))
        ran, failed = ran + result.attempted, failed + result.failed
    return ran, failed


def run_page(page: Path) -> int:
    """Run the Python blocks of a page, one after the other. Return how many there were."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    names: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)
    return len(blocks)


def run_script(script: Path) -> bool:
    """Run a script in a process of its own, and return whether it prints what its comments say."""
    expected = re.findall(r"^# > ?(.*)$", script.read_text(), re.MULTILINE)
    result = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, text=True, check=False)
    printed = result.stdout.splitlines()
    for line in difflib.unified_diff(expected, printed, f"{script.name}, comments", "printed", lineterm=""):
        print(line)
    return result.returncode == 0 and bool(expected) and printed == expected


def main() -> int:
    """Run everything."""
    scripts = sorted((Path(__file__).resolve().parents[3] / "examples" / "python").glob("*.py"))
    wrong = [script.name for script in scripts if not run_script(script)]
    print(f"{len(scripts) - len(wrong)} of {len(scripts)} scripts passed", *wrong)
    share_keys()
    ran, failed = run_docstrings()
    root = Path(__file__).resolve().parents[3]
    pages = [
        root / "docs" / "python.md",
        root / "docs" / "flower.md",
        root / "bindings" / "python" / "README.md",
    ]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        blocks = sum(run_page(page) for page in pages)
    print(f"{ran - failed} of {ran} examples in docstrings and {blocks} blocks of pages passed")
    return 1 if failed or not ran or not blocks or wrong or not scripts else 0


if __name__ == "__main__":
    sys.exit(main())
