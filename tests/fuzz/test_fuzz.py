"""Some hundred damaged inputs, and that the driver notices everything that can go wrong with one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse as sp
from tests.fuzz.cases import PATIENCE, SECONDS, outcomes, run_case
from tests.fuzz.claims import claim
from tests.fuzz.damage import FolderSubject, Special, mutate, read_tree, write_tree

from circlet.errors import DataError

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cases fork, and read /proc")


def test_damage_is_answered_or_refused(tmp_path):
    """In a process of its own: one that has threads, as this may have, should not be forked."""
    command = [sys.executable, "-m", "tests.fuzz", "--cases", "300", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "fuzz.json").read_text(encoding="utf-8"))
    assert summary["cases"] == 300
    assert summary["failures"] == []
    assert summary["outcomes"]["refused"] > 100


class TwoLinesError(DataError):
    def __str__(self):
        return "found a\nwanted b"


#: What the processor's clock shows in a process: cases are slow by this one, however fast the machine is.
busy = [0.0]


def answer(how, folder):
    errors = {"error": KeyError("a"), "refused": DataError("found a; wanted b"), "message": TwoLinesError()}
    if how in errors:
        raise errors[how]
    if how == "warning":
        warnings.warn("careful", stacklevel=1)
    if how == "large":
        assert len(b"x" * 520_000_000) > 0
    if how == "slow":
        busy[0] += SECONDS + 1
    if how == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        signal.pause()
    return "something else" if how in ("wrong", "other") else "the answer"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_every_failure_is_noticed(tmp_path):
    hows = ["same", "wrong", "error", "refused", "message", "warning", "large", "slow", "crash", "hang", "other"]
    subjects = [FolderSubject(how, {"file": b"content"}, [], partial(answer, how), how != "other") for how in hows]
    expected = dict.fromkeys(hows, "the answer")

    def run(number, folder, tell):
        own = [subjects[number]]
        return run_case(number, folder, tell, seed=0, subjects=own, expected=expected, clock=lambda: busy[0])

    now, found = [0.0], []
    for outcome in outcomes(run, range(len(hows)), tmp_path, jobs=len(hows), clock=lambda: now[0]):
        found.append(outcome)
        if len(found) == len(hows) - 1:  # no patience ends before all have answered but the one that never does
            now[0] = PATIENCE + 1
    found.sort(key=lambda each: each.case)
    assert [each.outcome for each in found] == hows
    assert [each.subject for each in found] == hows  # known even if the process has crashed
    assert found[hows.index("large")].memory > 500e6


def test_a_case_follows_from_its_number():
    tree, other = {"a.json": b'{"n": [1, 2]}', "b.txt": b"1 2 3\n" * 9}, {"b.txt": b"else"}

    def damaged(number):
        copy, random = dict(tree), Random(number)
        return [mutate(copy, [other], random) for _ in range(3)], copy

    cases = [damaged(number) for number in range(60)]
    assert cases == [damaged(number) for number in range(60)]
    assert all(copy != tree for _, copy in cases[:5])
    assert len({done[0][0] for done, _ in cases}) > 8


def test_claims_leave_the_rest_as_it_was(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(4.0))
    sp.save_npz(tmp_path / "a.npz", sp.eye(3, format="csr"))
    (tmp_path / "a.safetensors").write_bytes(safetensors.numpy.save({"a": np.arange(4, dtype=np.float32)}))
    (tmp_path / "a.json").write_text('{"a": 1, "b": [true, null]}')
    for path in tmp_path.iterdir():
        changed = {claim(path.name, path.read_bytes(), Random(number)) for number in range(10)}
        assert len(changed) > 4
        assert path.suffix != ".npy" or all(each.startswith(b"\x93NUMPY") for each in changed)


def test_trees_come_back_from_the_disk(tmp_path):
    tree = {"a": b"1", "inner/b": b"2"}
    write_tree({**tree, "pipe": Special.FIFO, "zero": Special.ZERO, "loop": Special.LOOP}, tmp_path / "t")
    assert read_tree(tmp_path / "t") == tree
    assert (tmp_path / "t" / "pipe").is_fifo()
