"""How the threads of a process wait for each other.

torch's threads meet at the end of every parallel loop, and by default OpenMP lets them spin while they wait.
Beside one other busy process, a thread that has lost its core then keeps all others spinning. Threads that spin
only briefly before they sleep are nearly as fast on an idle machine and much faster on a busy one, as
benchmarks/threads.py measures.
"""

from __future__ import annotations

import os
import sys

__all__ = ["spin_briefly"]

#: If the user has set any of these, OpenMP's own, GNU's or LLVM's, it decides how threads wait.
CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
#: Turns that a thread spins before it sleeps. GNU's OpenMP, which torch has on Linux, reads it.
SPINS = 1000


def spin_briefly() -> None:
    """Let waiting threads spin only briefly, unless the user has chosen or torch has been imported already."""
    if "torch" not in sys.modules and not any(name in os.environ for name in CHOICES):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
