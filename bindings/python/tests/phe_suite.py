"""Runs the tests of the installed python-paillier against ``dphe.phe``, and prints how many passed.

The tests belong to python-paillier. They are loaded from its installation at run time, and import this package's
modules under the name ``phe``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import unittest
import warnings
from pathlib import Path

# The tests of the command line of python-paillier, which this package does not have, are in another file.
MODULES = ("paillier_test", "math_test", "util_test")
EXPECTED = 205


def load() -> unittest.TestSuite:
    """Return python-paillier's tests, which use this package's modules."""
    spec = importlib.util.find_spec("phe")
    assert spec is not None, "python-paillier is not installed"
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "tests"
    from dphe import phe

    phe.install()
    assert sys.modules["phe"] is phe
    suite = unittest.TestSuite()
    for name in MODULES:
        test_spec = importlib.util.spec_from_file_location(f"phe_tests.{name}", folder / f"{name}.py")
        assert test_spec is not None
        assert test_spec.loader is not None
        module = importlib.util.module_from_spec(test_spec)
        test_spec.loader.exec_module(module)
        suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(module))
    return suite


def main() -> int:
    """Run the tests."""
    warnings.simplefilter("ignore")
    result = unittest.TextTestRunner(verbosity=1, stream=sys.stderr).run(load())
    passed = result.testsRun - len(result.failures) - len(result.errors) - len(result.skipped)
    print(f"{passed} of {EXPECTED} tests of python-paillier passed")
    return 0 if passed == EXPECTED and result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
