"""Runs the examples in docstrings and in ``docs/python.md``, and prints how many passed.

Keys of one length are generated once, because each takes seconds.
"""

from __future__ import annotations

import doctest
import functools
import importlib
import os
import re
import sys
import tempfile
from pathlib import Path
from unittest import mock

from dphe import phe
from dphe.paillier import DecryptionKey

MODULES = (
    "dphe",
    "dphe.errors",
    "dphe.layout",
    "dphe.paillier",
    "dphe.phe",
    "dphe.phe.encoding",
    "dphe.phe.paillier",
    "dphe.phe.util",
    "dphe.roles",
    "dphe.sklearn",
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


def main() -> int:
    """Run everything."""
    share_keys()
    ran, failed = run_docstrings()
    root = Path(__file__).resolve().parents[3]
    pages = [root / "docs" / "python.md", root / "bindings" / "python" / "README.md"]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        blocks = sum(run_page(page) for page in pages)
    print(f"{ran - failed} of {ran} examples in docstrings and {blocks} blocks of pages passed")
    return 1 if failed or not ran or not blocks else 0


if __name__ == "__main__":
    sys.exit(main())
