"""Secure aggregation for `Flower <https://flower.ai>`_: encrypted means in other people's training.

A :func:`dphe_mod` in the ``ClientApp`` seals what a node has learnt, and a :class:`SecureStrategy` around the strategy
of the ``ServerApp`` adds it up. The server sees the weighted mean of all updates of a round, and neither a single
update nor how many examples a node has.

.. code-block:: python

    app = ClientApp(mods=[dphe_mod])  # client_app.py

    strategy = SecureStrategy(FedAvg(), "aggregator.kit")  # server_app.py

:func:`create_task` makes the kits of all parties. In simulations, a :class:`Simulation` instead of the path of a kit
does so when the run starts. It protects nothing, because one machine has all keys.
"""

from __future__ import annotations

import os
import re

try:
    from flwr import __version__ as _flwr_version
except ImportError as _error:
    raise ImportError('dphe.flower needs Flower; run `pip install "dphe[flower]"`') from _error

from dphe.errors import Refused

#: The first version of Flower that works, and the first one that is not known to work.
TESTED_VERSIONS = ((1, 32), (1, 43))


def check_version(version: str) -> None:
    """Refuse a version of Flower for which this module was not tested.

    >>> check_version("1.41.0")
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    found = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    first, end = TESTED_VERSIONS
    if first <= found < end or os.environ.get("DPHE_FLOWER_UNTESTED") == "1":
        return
    raise Refused(
        f"dphe.flower was tested with Flower {first[0]}.{first[1]} to {end[0]}.{end[1] - 1}, not with {version}; "
        "install one of these, or set DPHE_FLOWER_UNTESTED=1 after your own tests",
        "version",
    )


check_version(_flwr_version)

from dphe.flower.client import dphe_mod  # noqa: E402
from dphe.flower.key_generator import (  # noqa: E402
    FileKeyGenerator,
    SocketKeyGenerator,
    SumOpener,
    serve_key_generator,
)
from dphe.flower.kits import Settings, create_task  # noqa: E402
from dphe.flower.server import SecureStrategy, Simulation  # noqa: E402

__all__ = [
    "FileKeyGenerator",
    "SecureStrategy",
    "Settings",
    "Simulation",
    "SocketKeyGenerator",
    "SumOpener",
    "check_version",
    "create_task",
    "dphe_mod",
    "serve_key_generator",
]
