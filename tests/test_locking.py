from __future__ import annotations

import os

import pytest

from circlet.locking import lock


def test_a_second_handle_is_refused_until_the_first_is_closed(tmp_path):
    path = tmp_path / "file"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    lock(first)
    with pytest.raises((BlockingIOError, PermissionError)):
        lock(second)
    os.close(first)
    lock(second)
    os.close(second)
