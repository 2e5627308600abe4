"""The embedded dataset: a small package with labels found by hand, the cache, and the real build."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from circlet.data import pydocs
from circlet.data.pydocs import PyDoc, PyDocs, build_pydocs, cached_pydocs, installed_roots
from circlet.errors import DataError, OutputError

SOURCES = {
    "shop/__init__.py": '''
def open_shop(name, *, lights=True):
    """Open the shop of this name in the morning.

    Parameters
    ----------
    name : str
        SECRET
    lights : bool

    Returns
    -------
    door : Door
        The open door.

    Examples
    --------
    SECRET prose
    >>> SECRET

    Notes
    -----
    Closed on Sundays.
    """
''',
    "shop/_prices.py": '''
class Price:
    """What a thing costs, in some currency.

    Attributes
    ----------
    SECRET
    """

    def __init__(self, amount, currency="EUR", *rates, _hidden=0, **options):
        """Make a price out of an amount and more."""

    def add(self, other, /):
        """p.add(other=(SECRET), *more) -> Price
        add(SECRET) -- Add the other price (if any) to this one.
        """

    @staticmethod
    def parse(text):
        """Read a price as it is printed on labels.

        :param text: SECRET
            SECRET
        :returns: the price of it

        >>> SECRET
        SECRET

        Empty text is an error.
        """

    @classmethod
    def zero(cls, currency):
        """Give the price of things that are free."""

    def _round(self):
        """Round it, but nobody is to know."""

    class Tag:
        """A small paper with a price on."""

        def __new__(cls, paper): ...

class _Private:
    """A class that nobody is to know."""

    def method(self):
        """A method that nobody is to know."""

def short(x):
    """Only four words here."""

def undocumented(x): ...

def outer():
    """Define a function that no one reaches."""
    def inner():
        """A function that no one can reach."""
''',
    "shop/goods/fruit.py": '''
"""The docstring of a module is no document."""
if True:
    try:
        async def pick(tree, count):
            """Pick as many fruits as you can.

            Args:
                tree: SECRET

                count: SECRET
            Take a ladder.
            """
    except ImportError:
        def pick(tree):
            """Another definition of the same name, unused."""
else:
    def climb(tree):
        """Climb up to the top of it."""

def copy_of_climb(ladder):
    """Climb   up to the top
    of it."""
''',
    "shop/tests/test_shop.py": 'def test():\n    """A test that is not a document at all."""',
    "shop/externals/other.py": 'def other():\n    """Code of somebody else, carried along in here."""',
    "shop/setup.py": 'def setup():\n    """How this package used to be installed once."""',
    "shop/not-a-module.py": 'def script():\n    """A script whose name cannot be imported ever."""',
    "shop/broken.py": "def broken(:\n",
    "shop/python2.py": 'print "no longer a language that we can read"\n',
    "shop/latin1.py": '# -*- coding: latin-1 -*-\ndef cafe():\n    """Order a café and drink it slowly."""\n',
    "shop/escapes.py": 'def escapes():\n    """A stray \\d escape and \\udc80 in these words."""\n',
    "lib/box/lid.py": 'def shut(box):\n    """Shut the lid of the box firmly."""\n',
    "lib/_closet.py": 'def hide(box):\n    """Put it where no one will look."""\n',
}


@pytest.fixture
def roots(tmp_path: Path) -> dict[str, Path]:
    for name, source in SOURCES.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.encode("latin-1"))
    (tmp_path / "src/shop/bad_encoding.py").write_bytes(
        b'def f():\n    """\xff not the encoding that it claims"""'
    )
    (tmp_path / "src/shop/null.py").write_bytes(b'def f():\n    """There is a null byte in here"""\n\0')
    (tmp_path / "src/shop/deep.py").write_bytes(b"(" * 5000 + b")" * 5000)
    return {"python": tmp_path / "src/lib", "shop": tmp_path / "src/shop"}


def all_of(documents: PyDocs) -> dict[str, PyDoc]:
    return {document.name: document for document in (*documents.train, *documents.test)}


def test_labels_by_hand(roots):
    labels = {name: document.labels for name, document in all_of(build_pydocs(roots, 1)).items()}
    price = ("package: shop", "kind: method")  # _prices is private: the price is the shop's
    assert labels == {
        "_closet.hide": ("package: python", "kind: function", "takes: box"),
        "box.lid.shut": (*("package: python", "module: box", "module: box.lid", "kind: function"), "takes: box"),
        "shop._prices.Price": (
            *("package: shop", "kind: class"),
            *("takes: amount", "takes: currency", "takes: *rates", "takes: **options"),
        ),
        "shop._prices.Price.Tag": ("package: shop", "kind: class", "takes: paper"),
        "shop._prices.Price.__init__": (
            *price,
            *("takes: amount", "takes: currency", "takes: *rates", "takes: **options"),
        ),
        "shop._prices.Price.add": (*price, "takes: other"),
        "shop._prices.Price.parse": (*price, "takes: text"),
        "shop._prices.Price.zero": (*price, "takes: currency"),
        "shop._prices.outer": ("package: shop", "kind: function"),
        "shop.escapes.escapes": ("package: shop", "module: shop.escapes", "kind: function"),
        "shop.goods.fruit.climb": (
            *("package: shop", "module: shop.goods", "module: shop.goods.fruit", "kind: function"),
            "takes: tree",
        ),
        "shop.goods.fruit.pick": (
            *("package: shop", "module: shop.goods", "module: shop.goods.fruit", "kind: function"),
            *("takes: tree", "takes: count"),
        ),
        "shop.latin1.cafe": ("package: shop", "module: shop.latin1", "kind: function"),
        "shop.open_shop": ("package: shop", "kind: function", "takes: name", "takes: lights"),
    }


def test_texts_by_hand(roots):
    texts = {name: document.text for name, document in all_of(build_pydocs(roots, 1)).items()}
    assert texts["shop.open_shop"] == (
        "Open the shop of this name in the morning. Returns door : Door The open door. Notes Closed on Sundays."
    )
    assert texts["shop._prices.Price.parse"] == (
        "Read a price as it is printed on labels. :returns: the price of it Empty text is an error."
    )
    assert texts["shop._prices.Price.add"] == "Add the other price (if any) to this one."
    assert texts["shop.goods.fruit.pick"] == "Pick as many fruits as you can. Take a ladder."
    assert texts["shop.latin1.cafe"] == "Order a café and drink it slowly."
    assert texts["shop.escapes.escapes"] == "A stray \\d escape and ? in these words."
    assert not any("SECRET" in text for text in texts.values())


def test_unreadable_sources_are_skipped_with_a_log_line(roots, caplog):
    caplog.set_level(logging.INFO, "circlet.data.pydocs")
    build_pydocs(roots)
    skipped = sorted(Path(record.args[0]).name for record in caplog.records if "skipping" in record.msg)
    assert skipped == ["bad_encoding.py", "broken.py", "deep.py", "null.py", "python2.py"]


def test_two_builds_are_equal(roots):
    assert build_pydocs(roots, 1) == build_pydocs(dict(reversed(roots.items())), 1)


def test_rare_labels_go_and_documents_without_any(roots):
    found = all_of(build_pydocs(roots))  # with the usual minimum of 5
    labels = {label for document in found.values() for label in document.labels}
    assert labels == {"package: shop", "kind: function"}  # there are 4 methods
    assert found["box.lid.shut"].labels == ("kind: function",)
    assert found["shop._prices.Price"].labels == ("package: shop",)


def test_document_whose_labels_are_all_rare_is_dropped(tmp_path):
    for name in "abcde":
        path = tmp_path / "many" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'def {name}():\n    """This is the function called {name} here."""\n')
    (tmp_path / "one").mkdir()
    (tmp_path / "one/lone.py").write_text('class Lone:\n    """The only class of its whole package."""\n')
    found = all_of(build_pydocs({"many": tmp_path / "many", "one": tmp_path / "one"}))
    assert sorted(found) == [f"many.{name}.{name}" for name in "abcde"]


def test_first_name_wins(tmp_path):
    # The same text under two names, and the same name in a module and a package.
    sources = {"b.py": "x", "a.py": "x", "c.py": "z", "c/__init__.py": "y"}
    for name, parameter in sources.items():
        (tmp_path / "c").mkdir(exist_ok=True)
        text = "The very same words in both." if parameter == "x" else f"These words are only in {parameter}."
        (tmp_path / name).write_text(f'def same({parameter}):\n    """{text}"""\n')
    found = all_of(build_pydocs({"p": tmp_path}, 1))
    assert sorted(found) == ["p.a.same", "p.c.same"]
    assert "takes: z" in found["p.c.same"].labels


def test_no_sources(tmp_path):
    with pytest.raises(DataError, match="pydocs: found no Python source with docstrings"):
        build_pydocs({"python": tmp_path / "nowhere"})


def test_missing_package_is_left_out(caplog):
    assert sorted(installed_roots(["numpy", "no_such_package_here"])) == ["numpy", "python"]
    assert "no_such_package_here is not installed" in caplog.text
    assert pydocs._versions(["no-such-package"])["no-such-package"] is None


# The cache


class Builds:
    """Builds from the small package, and counts how often."""

    def __init__(self, roots) -> None:
        self.roots, self.count = roots, 0

    def __call__(self) -> PyDocs:
        self.count += 1
        return build_pydocs(self.roots)


@pytest.fixture
def builds(roots) -> Builds:
    return Builds(roots)


def test_cache_is_written_and_used(builds, tmp_path):
    folder = tmp_path / "a" / "cache"
    first = cached_pydocs(folder, builds)
    assert cached_pydocs(folder, builds) == first
    assert builds.count == 1
    assert sorted(path.name for path in folder.iterdir()) == ["pydocs.json", "test.jsonl", "train.jsonl"]
    records = [json.loads(line) for line in (folder / "train.jsonl").read_text("utf-8").splitlines()]
    document = first.train[0]
    assert records[0] == {"id": document.name, "text": document.text, "labels": list(document.labels)}
    state = json.loads((folder / "pydocs.json").read_text())
    assert sorted(state["versions"]) == ["numpy", "python", "scikit-learn", "scipy"]
    assert state["counts"]["train"] == len(first.train) == len(records)
    assert state["counts"]["test"] == len(first.test)


@pytest.mark.parametrize("name", ["train.jsonl", "test.jsonl", "pydocs.json"])
@pytest.mark.parametrize("how", ["flip", "cut", "empty", "remove"])
def test_a_damaged_cache_is_rebuilt(builds, tmp_path, caplog, name, how):
    folder = tmp_path / "cache"
    first = cached_pydocs(folder, builds)
    path = folder / name
    before = path.read_bytes()
    damaged = {"flip": before.replace(b'"', b"'", 1), "cut": before[: len(before) // 2], "empty": b""}
    if how == "remove":
        path.unlink()
    else:
        path.write_bytes(damaged[how])
    assert cached_pydocs(folder, builds) == first
    assert builds.count == 2
    assert path.read_bytes() == before
    assert ("is damaged" in caplog.text) == (how != "remove")
    assert cached_pydocs(folder, builds) == first
    assert builds.count == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no such pipes on Windows")
@pytest.mark.parametrize("name", ["train.jsonl", "pydocs.json"])
def test_a_pipe_in_the_cache_is_not_waited_for(builds, tmp_path, name):
    cached_pydocs(tmp_path, builds)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(OutputError, match=f"cannot replace .*{name}: found a device, pipe or socket"):
        cached_pydocs(tmp_path, builds)


@pytest.mark.parametrize(
    "state",
    [
        *(b"[]", b"null", b"{}", b"\xff", b'{"format": 1}', b"[" * 100_000),
        *({"versions": {"python": "4.0"}}, {"format": 1}),  # of other versions
    ],
)
def test_another_state_is_rebuilt(builds, tmp_path, state):
    first, path = cached_pydocs(tmp_path, builds), tmp_path / "pydocs.json"
    if isinstance(state, dict):
        state = json.dumps(json.loads(path.read_bytes()) | state).encode()
    path.write_bytes(state)
    assert cached_pydocs(tmp_path, builds) == first
    assert builds.count == 2


def test_cache_that_cannot_be_written(builds, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write"):
        cached_pydocs(tmp_path / "file", builds)
    assert builds.count == 0  # it fails before the work


# The real one


def test_real_size(real_pydocs):
    labels = {label for document in all_of(real_pydocs).values() for label in document.labels}
    n_train, n_test = len(real_pydocs.train), len(real_pydocs.test)
    assert n_train + n_test >= 8_000
    assert len(labels) > 1_000
    assert 0.18 < n_test / (n_train + n_test) < 0.22


def test_real_documents(real_pydocs):
    for split in (real_pydocs.train, real_pydocs.test):
        names = [document.name for document in split]
        assert names == sorted(set(names))
    found = all_of(real_pydocs)
    assert len({document.text for document in found.values()}) == len(found)
    kinds = ("package: ", "module: ", "kind: ", "takes: ")
    for document in found.values():
        assert len(document.text.split()) >= 5
        assert document.text == " ".join(document.text.split())
        assert all(label.startswith(kinds) and "._" not in label for label in document.labels)
    assert {*("package: python", "module: textwrap", "kind: function", "takes: width")} <= set(
        found["textwrap.wrap"].labels
    )


@pytest.mark.usefixtures("real_pydocs")
def test_real_info_needs_no_network(circlet, monkeypatch):
    """Here and not with the commands, so that only one process of `make test` builds the real dataset."""
    monkeypatch.setattr(socket, "socket", None)
    described = json.loads(circlet("datasets", "info", "pydocs", "--json").stdout)
    assert described["train_points"] > 5000
    assert described["labels"] > 800


def test_real_build_imports_and_prints_nothing_and_splits_as_other_processes_do():
    names = ["textwrap.wrap", "json.dumps", "numpy.lib._function_base_impl.diff", "shop.open_shop", "a", "b"]
    code = (
        "import sys; from pathlib import Path\n"
        "from circlet.data import pydocs\n"
        "before = set(sys.modules)\n"
        "roots = pydocs.installed_roots()\n"
        "pydocs.build_pydocs({'numpy': roots['numpy'] / 'linalg'})\n"
        "new = set(sys.modules) - before\n"
        "heavy = {'scipy', 'sklearn', 'numpy', 'torch'}\n"
        "assert not heavy & {name.partition('.')[0] for name in new}, new\n"
        f"print([pydocs._for_testing(name) for name in {names}])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    split = [pydocs._for_testing(name) for name in names]
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{split}\n", "")
