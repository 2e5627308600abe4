"""What all tests share: where they may write, how hypothesis picks examples, and `circlet` in this process."""

from __future__ import annotations

import gc
import io
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, settings

# The same examples every time. `make slow` tries new ones, with the other profile. A busy machine fails neither.
patient = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", patient, derandomize=True, max_examples=50)
settings.register_profile("random", patient, max_examples=500, print_blob=True)
settings.load_profile("fixed")

if TYPE_CHECKING:
    from circlet.data.pydocs import PyDocs

_scratch = pytest.StashKey[Path]()


# Last, because pytest decides by TERM whether its own output has colors.
@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Point everything that writes outside of a test's folder to a temporary one, in child processes too."""
    scratch = config.stash[_scratch] = Path(tempfile.mkdtemp(prefix="circlet-tests-"))
    for name in ("home", "data", "matplotlib"):
        (scratch / name).mkdir()
    os.environ |= {
        "HOME": str(scratch / "home"),
        "USERPROFILE": str(scratch / "home"),  # what Windows has instead
        "CIRCLET_DATA": str(scratch / "data"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(scratch / "hypothesis"),
        "MPLCONFIGDIR": str(scratch / "matplotlib"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "CUDA_CACHE_PATH": str(scratch / "cuda"),
        "OMP_NUM_THREADS": "1",
        # Commands print 80 plain columns, whatever terminal the tests are started from.
        "TERM": "dumb",
    }
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        os.environ.pop(name, None)
    # A shell starts what runs in the background with Ctrl-C ignored, and Python leaves it so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The tensors are small: several threads would mostly wait, for each other and for other programs.
    torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from visiting everything that imports have made, again and again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_scratch], ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def home() -> Iterator[Path]:
    """The user's folder as the tests see it, which they leave empty."""
    folder = Path(os.environ["HOME"])
    yield folder
    assert list(folder.rglob("*")) == [], "a test wrote into the user's folder"


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For small tensors: several threads would mostly wait, for each other and for other programs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Finished(NamedTuple):
    """What is left of a command, by the names of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def circlet() -> Callable[..., Finished]:
    """Run the `circlet` command in this process, which saves seconds of imports.

    Words are its arguments, `stdin` its input and other keywords its environment.
    """

    def run(*words: object, stdin: str | bytes = "", **environment: str) -> Finished:
        from circlet.cli import main

        content = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(sys, "argv", ["circlet", *map(str, words)])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
            # It names itself after the program, which is not `python -m pytest`.
            patch.setattr(sys.modules["__main__"], "__package__", "")
            for name, value in environment.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main()
        assert isinstance(ended.value.code, int)
        return Finished(ended.value.code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture(scope="session")
def real_pydocs() -> PyDocs:
    """The embedded dataset, built without a network, once, in the data folder where `load_dataset` finds it."""
    from circlet.data import catalog
    from circlet.data.pydocs import cached_pydocs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "socket", None)
        return cached_pydocs(catalog.data_folder() / "pydocs")


@pytest.fixture(scope="session")
def change_config() -> Callable[..., None]:
    """Write other values into a model's config.json; `...` takes a key away."""

    from circlet import files

    def change(folder: Path, **changes: Any) -> None:
        path = folder / "config.json"
        config = {**json.loads(path.read_text(encoding="utf-8")), **changes}
        files.write_json(path, {key: value for key, value in config.items() if value is not ...})

    return change


@pytest.fixture(scope="session")
def pinned() -> dict[int, list[list[int]]]:
    """Random numbers in units of 2⁻²⁴ by seed, of the rows 0, 1, 2 and 2⁴⁰; models depend on them."""
    return {
        0: [
            [14254383, 7111711, 1971737, 2782558],
            [11965807, 9230765, 1185127, 5687059],
            [8815382, 2381994, 12898954, 6578039],
            [1660735, 1378427, 2071765, 9165199],
        ],
        7: [
            [14088638, 776242, 3083917, 4412586],
            [1227477, 2244797, 2554225, 4228487],
            [14229219, 6584236, 9663232, 15587824],
            [2008284, 2708288, 9952916, 3119629],
        ],
    }
