"""Keep agents from reading the gateway's own secrets.

Agents run as the gateway's user, and processes of one user may read each other's memory and environment, where the URL
of the database has its password. On Linux, a process can opt out of that; only root can then look into it.
"""

import sys

_PR_SET_DUMPABLE = 4


def protect_memory() -> bool:
    """Whether that worked. It also disables core dumps, which would contain the same."""
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
