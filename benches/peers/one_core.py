"""Binds all parties to one core, so that times can be compared."""

import os


def bind_to_one_core():
    """Binds this process to one core. Every process it starts inherits that."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core
