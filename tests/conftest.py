"""What all tests share: where they may write, how hypothesis picks examples, `circlet` in this process, models."""

from __future__ import annotations

import gc
import importlib.util
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, settings

from circlet import files
from circlet.data.dataset import Dataset, Split
from circlet.model import Model, fit
from circlet.settings import NetworkSettings, RunSettings, TrainingSettings
from circlet.storage.layout import FORMAT, described, sealed
from circlet_paper.synthetic import make_multilabel

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
        "ORT_DISABLE_TELEMETRY": "1",  # otherwise onnxruntime records its use in the user's folder
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
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a new process, where the one of the tests would not do."""

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
            env={**os.environ, "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1", **environment},
        )

    return run


@pytest.fixture(scope="session")
def one_clear_line() -> Callable[[Any], str]:
    """Check that a command failed with one line on stderr and nothing else, and give that line."""

    def check(finished: Any) -> str:
        assert finished.returncode == 2, finished.stderr
        assert finished.stdout == ""
        *before, line = finished.stderr.splitlines()
        assert before == []
        assert line.startswith("circlet: ")
        return line

    return check


@pytest.fixture(scope="session")
def works(circlet) -> Callable[..., Finished]:
    """Run a command that must succeed."""

    def run(*words: object, **given: Any) -> Finished:
        finished = circlet(*words, **given)
        assert finished.returncode == 0, finished.stderr
        return finished

    return run


@pytest.fixture(scope="session")
def refused(circlet, one_clear_line) -> Callable[..., str]:
    """Run a command that must fail with one line on stderr, and give that line."""

    def run(*words: object, **given: Any) -> str:
        return one_clear_line(circlet(*words, **given))

    return run


@pytest.fixture(scope="session")
def script() -> Callable[[str], Any]:
    """Import a script of the repository that is in no package, by its path."""

    @cache
    def load(path: str) -> Any:
        place = Path(__file__).parents[1] / path
        spec = importlib.util.spec_from_file_location(place.stem, place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def free_port() -> int:
    """A port of the loopback device that nobody uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


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
    """Write other values into a model's config.json; `...` takes a key away.

    The digests of config.json itself and of the files that it lists are made to fit whatever is there.
    """

    def change(folder: Path, **changes: Any) -> None:
        path = folder / "config.json"
        config = {**json.loads(path.read_text(encoding="utf-8")), **changes}
        if isinstance(config.get("files"), dict):
            present = {name: folder / about["file"] for name, about in config["files"].items()}
            config["files"] |= {name: described(each) for name, each in present.items() if each.is_file()}
        kept = {key: value for key, value in config.items() if value is not ...}
        files.write_json(path, sealed(kept) if kept.get("format") == FORMAT else kept)

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


# Small trained models of every kind of document

N, F, L = 80, 14, 6
NAMES = ["red", "green", "dark blue", "größer", "日本", "#6"]
WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
SMALL = RunSettings(
    NetworkSettings(dim=24, hidden=(16,), dropout=0.2), TrainingSettings(epochs=3, batch_size=16, lr=0.02)
)


def _split(kind: str, seed: int = 0) -> Split:
    random = np.random.default_rng(seed)
    Y = (random.random((N, L)) < 0.3).astype(np.float32)
    noise = (random.random((N, F - L)) * (random.random((N, F - L)) < 0.4)).astype(np.float32)
    X = np.hstack([Y * 2, noise]).astype(np.float32)
    if kind != "texts":
        return Split(sp.csr_matrix(X) if kind == "sparse" else X, sp.csr_matrix(Y))
    texts = [
        " ".join([*(f"label{label}" for label in np.flatnonzero(row)), *random.choice(WORDS, 3)]) for row in Y
    ]
    return Split(None, sp.csr_matrix(Y), texts)


def _trained(
    kind: str = "sparse", *, names: bool = True, network: NetworkSettings = SMALL.network, **arguments: Any
) -> Model:
    training = arguments.pop("training", SMALL.training)
    own = {name: arguments.pop(name) for name in ("scaling", "members") if name in arguments}
    settings = RunSettings(network, training, **own)
    return fit(
        _split(kind), settings, label_names=NAMES if names else None, validation=_split(kind, 1), **arguments
    )


@pytest.fixture(scope="session")
def small_run() -> RunSettings:
    """The settings of most models here."""
    return SMALL


@pytest.fixture(scope="session")
def split() -> Callable[..., Split]:
    """Make 80 documents of a kind (sparse, dense or texts) with some of 6 labels."""
    return _split


@pytest.fixture(scope="session")
def documents() -> Callable[[str], Any]:
    """Make documents that no model here has seen."""

    def make(kind: str) -> Any:
        rows = _split(kind, 2)
        return rows.texts if rows.X is None else rows.X

    return make


@pytest.fixture(scope="session")
def trained() -> Callable[..., Model]:
    """Train a model, for a test that changes it or its settings."""
    return _trained


@pytest.fixture(scope="session")
def shared() -> Callable[..., Model]:
    """Give a trained model that tests only read."""
    return cache(_trained)


@pytest.fixture(scope="session")
def synthetic() -> Dataset:
    """1,500 rows to learn from and 400 to test on, of 800 features and 60 labels."""
    return make_multilabel(1500, 800, 60, seed=0, n_test=400, labels_per_row=2, words_per_row=20)


@pytest.fixture(scope="session")
def on_synthetic(synthetic) -> Callable[..., Model]:
    """Give a model of the synthetic rows that tests only read."""
    training = TrainingSettings(epochs=8, batch_size=64, lr=0.01)

    @cache
    def give(**changes: Any) -> Model:
        network = NetworkSettings(dim=128, hidden=(64,), dropout=0.2, **changes)
        return fit(synthetic.train, RunSettings(network, training))

    return give


#: What Python reports before it changes anything on a disk.
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "fcntl.flock"}
CRASHED = 77


def crash_at(operation: int, folder: Path) -> None:
    """End this process without further ado at the n-th operation that changes anything in a folder."""
    left = [operation]

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not opened and event not in CHANGES:
            return
        if event != "fcntl.flock" and not str(arguments[0]).startswith(str(folder)):
            return
        left[0] -= 1
        if left[0] == 0:
            os._exit(CRASHED)

    sys.addaudithook(watch)


@pytest.fixture(scope="session")
def forked() -> Callable[[Callable[[], Any]], int]:
    """Start a child process that calls a function and ends with 0, or with 1 if that fails; gives its number."""

    def start(function: Callable[[], Any]) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of torch, which wait for work
            child = os.fork()
        if child:
            return child
        status = 1
        try:
            function()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            os._exit(status)

    return start


@pytest.fixture(scope="session")
def waited() -> Callable[[int], int]:
    """Wait for a child process; gives its exit status."""

    def wait(child: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    return wait


@pytest.fixture
def crashes(forked, waited) -> Callable[..., Iterator[int]]:
    """End a function in a child process at each of its operations in turn; `prepare` is called before each."""

    def run(folder: Path, prepare: Callable[[], Any], function: Callable[[], Any], every: int) -> Iterator[int]:
        for operation in range(1, 1000, every):
            prepare()

            def child(operation: int = operation) -> None:
                crash_at(operation, folder)
                function()

            status = waited(forked(child))
            assert status in (0, CRASHED), status
            yield operation
            if status == 0:
                assert operation > 10
                return
        raise AssertionError("it does not end")

    return run


@pytest.fixture(scope="session")
def emptied() -> Callable[[Path], None]:
    """Remove whatever is in a folder."""

    def empty(folder: Path) -> None:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()

    return empty
