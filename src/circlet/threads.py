"""How the threads of a process wait for each other.

torch's threads meet at the end of every parallel loop, and by default OpenMP lets them spin while they wait.
Beside one other busy process, a thread that has lost its core then keeps all others spinning. Threads that sleep
are a little slower on an idle machine and much faster on a busy one: benchmarks/threads.py.
"""

from __future__ import annotations

import os
import sys

__all__ = ["sleep_while_waiting"]

#: Any of these, set by the user, says how threads shall wait: OpenMP's own, GNU's and LLVM's.
CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def sleep_while_waiting() -> None:
    """Let threads sleep while they wait, unless the user has chosen or torch is there and has read its choice."""
    if "torch" not in sys.modules and not any(name in os.environ for name in CHOICES):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
