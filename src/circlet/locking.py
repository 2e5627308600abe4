"""Locks on open files, which vanish with the process that holds them."""

from __future__ import annotations

import os
import sys

__all__ = ["lock"]

if sys.platform == "win32":
    import msvcrt

    #: Where the locked byte is: behind all that is ever written, since nobody else can read it.
    _PLACE = 1 << 40

    def lock(file: int) -> None:
        """Lock an open file; `BlockingIOError` or `PermissionError` if another process or handle has locked it."""
        place = os.lseek(file, 0, os.SEEK_CUR)
        os.lseek(file, _PLACE, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, place, os.SEEK_SET)
else:
    import fcntl

    def lock(file: int) -> None:
        """Lock an open file; `BlockingIOError` or `PermissionError` if another process or handle has locked it."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
