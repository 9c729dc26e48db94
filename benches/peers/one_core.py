"""One core for everybody, so that times can be compared."""

import os


def bind_to_one_core():
    """Every party inherits this, so that none has more than one core."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core
