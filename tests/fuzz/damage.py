"""What is damaged, and how: folders as dictionaries, which are cheap to change, and their way to a disk.

Each mutation changes one thing in a tree and says what it changed.
"""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeAlias

from tests.fuzz.claims import claim


class Special(Enum):
    """What can stand in place of a file."""

    FIFO = "FIFO"
    FOLDER = "folder"
    ZERO = "link to /dev/zero"
    FULL = "link to /dev/full"
    RANDOM = "link to /dev/urandom"
    NULL = "link to /dev/null"
    TTY = "link to /dev/tty"
    LOOP = "link to itself"
    DANGLING = "link to nothing"
    PARENT = "link to its folder"


#: The content of each file by its path in the folder.
Tree: TypeAlias = dict[str, bytes | Special]


def read_tree(folder: Path) -> Tree:
    """All files of a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_tree(tree: Tree, folder: Path) -> None:
    """Write a folder, in place of any that is there."""
    _remove(folder)
    folder.mkdir(parents=True)
    for name, content in tree.items():
        path = folder / name
        if path.parent != folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Special):
            _make(content, path)
        else:
            path.write_bytes(content)


def replace_folder(folder: Path, random: Random) -> tuple[str, str]:
    """Put something else in place of a folder; returns what it was, and what is there now."""
    _remove(folder)
    special = random.choice([None, *Special])
    if special is None:
        folder.write_bytes(b"")
    else:
        _make(special, folder)
    return "folder", "is an empty file" if special is None else f"is a {special.value}"


def _remove(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)


def _make(special: Special, path: Path) -> None:
    elsewhere = {Special.LOOP: path.name, Special.DANGLING: "nowhere", Special.PARENT: "."}
    if special is Special.FIFO:
        os.mkfifo(path)
    elif special is Special.FOLDER:
        path.mkdir()
    else:
        path.symlink_to(elsewhere.get(special, special.value.removeprefix("link to ")))


# Mutations

#: Bytes that mean something to one of the formats hurt more than random ones.
PIECES = [
    b"\n", b"\r", b"\r\n", b" ", b"\t", b",", b":", b";", b'"', b"#", b"-", b"9" * 12, b"1e99", b"nan", b"\0",
    b"\xff", b"{", b"[", b"}", b"\\", b"\xef\xbb\xbf", b"\xed\xb2\x80", "ﬁ\u2028\u0085".encode(), b"\x1f\x8b",
    b"PK\x03\x04", b"\x93NUMPY",
]  # fmt: skip
_LONG = (1 << 20, 70 << 20)  # bytes of a line longer than most documents, and of one that no reader takes
_UNPACKED = 1 << 31  # bytes that a bomb unpacks to


def flip(content: bytes, random: Random) -> bytes:
    """Some bits are the other way round."""
    out = bytearray(content)
    for _ in range(random.choice([1, 1, 1, 2, 8])):
        out[random.randrange(len(out))] ^= 1 << random.randrange(8)
    return bytes(out)


def cut(content: bytes, random: Random) -> bytes:
    """A part is missing, at the end most often."""
    start, stop = sorted(random.randrange(len(content) + 1) for _ in range(2))
    return content[:start] + (b"" if random.random() < 0.6 else content[stop:])


def insert(content: bytes, random: Random) -> bytes:
    """There is something more."""
    at = random.choice([0, len(content), random.randrange(len(content) + 1)])
    piece = random.choice(PIECES) if random.random() < 0.7 else random.randbytes(random.randrange(1, 9))
    return content[:at] + piece * random.choice([1, 1, 1, 50]) + content[at:]


def repeat(content: bytes, random: Random) -> bytes:
    """A part is there twice, as after a write that was tried again."""
    start, stop = sorted(random.randrange(len(content) + 1) for _ in range(2))
    return content[:stop] + content[start:]


def blank(content: bytes, random: Random) -> bytes:
    """A part is zeros, as after a crash of the system."""
    start, stop = sorted(random.randrange(len(content) + 1) for _ in range(2))
    return content[:start] + bytes(stop - start) + content[stop:]


def move(content: bytes, random: Random) -> bytes:
    """Two parts have changed places."""
    first, second, third = sorted(random.randrange(len(content) + 1) for _ in range(3))
    return content[:first] + content[second:third] + content[first:second] + content[third:]


def long_line(content: bytes, random: Random) -> bytes:
    """A line is much longer than any document."""
    at = random.choice([0, len(content), content.find(b"\n") + 1, random.randrange(len(content) + 1)])
    piece = random.choice([b"a", b" ", b"1", b"\t", b",", b'"', b"\n", b"{", b"a "])
    length = _LONG[0] if piece == b"\n" else random.choice(_LONG)
    return content[:at] + piece * (length // len(piece)) + content[at:]


def bomb(content: bytes, random: Random) -> bytes:
    """The file is gzipped, and unpacks to gigabytes: zeros, empty lines, or its own lines over and over."""
    step = 1 << 24
    unit = random.choice([bytes(step), b"\n" * step, content * max(1, step // len(content)), b" " * step])
    if random.random() < 0.5:
        return gzip.compress(unit, mtime=0) * (_UNPACKED // len(unit))
    coder = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = coder.compress(content) + coder.flush(zlib.Z_FULL_FLUSH)
    again = coder.compress(unit) + coder.flush(zlib.Z_FULL_FLUSH)
    return start + again * (_UNPACKED // len(unit)) + coder.flush()


#: Damage to the content of a file that is not empty, whatever its format.
OF_BYTES: dict[str, Callable[[bytes, Random], bytes]] = {
    each.__name__.replace("_", " "): each for each in (flip, cut, insert, repeat, blank, move, long_line, bomb)
}
#: How often each mutation is chosen. Bombs and long lines take long to make.
WEIGHTS = {
    "flip": 12, "cut": 8, "insert": 10, "repeat": 5, "blank": 4, "move": 4, "claim": 40, "swap": 6, "exchange": 2,
    "missing": 2, "extra": 2, "special": 4, "bomb": 0.3, "long line": 0.3,
}  # fmt: skip


def mutate(tree: Tree, others: Sequence[Tree], random: Random) -> tuple[str, str]:
    """Damage a tree in one way, with files of others; returns the name of the mutation and of the changed file."""
    while True:
        kind = random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if not (files := sorted(name for name, content in tree.items() if isinstance(content, bytes) and content)):
            return "nothing", "left"
        name = random.choice(files)
        if _change(tree, kind, name, files, others, random):
            return kind, name


def _change(tree: Tree, kind: str, name: str, files: list[str], others: Sequence[Tree], random: Random) -> bool:
    """Whether this mutation was possible, and was done."""
    content = tree[name]
    assert isinstance(content, bytes)
    if kind in OF_BYTES:
        tree[name] = OF_BYTES[kind](content, random)
        if kind == "bomb" and not name.endswith(".gz") and random.random() < 0.5:
            tree[name + ".gz"] = tree.pop(name)
    elif kind == "claim":
        if (changed := claim(name, content, random)) is None:
            return False
        tree[name] = changed
    elif kind == "swap":
        if not (found := [other[name] for other in others if name in other]):
            return False
        tree[name] = random.choice(found)
    elif kind == "exchange":
        other = random.choice(files)
        tree[name], tree[other] = tree[other], tree[name]
    elif kind == "missing":
        del tree[name]
    elif kind == "extra":
        strangers = {other: each for tree_ in others for other, each in tree_.items() if other not in tree}
        strangers |= {name + suffix: content for suffix in (".gz", "~", ".part")}
        strangers |= {"train.txt": b"0 1:1\n", "test.jsonl": b'{"text": "a"}\n', "labels.txt.gz": b"\x1f\x8b"}
        chosen = random.choice(sorted(strangers))
        tree.setdefault(chosen, strangers[chosen])
    else:
        tree[name] = random.choice(list(Special))
    return True


# Subjects


@dataclass(frozen=True)
class Trial:
    """Something damaged, ready to be asked."""

    #: What was done to it, by name; and with the files that it was done to.
    mutation: str
    details: str
    #: Gives the answer, or raises an error.
    ask: Callable[[], Any]
    #: Whether any answer other than that of the undamaged subject is wrong. If not, `ask` itself asserts all
    #: that can be said about an answer.
    exact: bool


class Subject(Protocol):
    """Something that can be damaged."""

    name: str
    weight: float

    #: The answer of the subject as it should be, and a trial of a damaged copy; in this folder.
    def intact(self, folder: Path) -> Any: ...
    def damaged(self, folder: Path, random: Random) -> Trial: ...


@dataclass
class FolderSubject:
    """A folder of files."""

    name: str
    tree: Tree
    #: Folders that files may be mixed up with.
    others: list[Tree]
    #: Takes the path of a folder; see `Trial`.
    answer: Callable[[Path], Any]
    exact: bool = True
    #: Makes the digests in a damaged tree right again, if it can, so that what lies behind them is tested too.
    reseal: Callable[[Tree], bool] | None = None
    #: A file without which nothing tells what the answer should be.
    witness: str | None = None
    #: How often it is chosen.
    weight: float = 1.0

    def intact(self, folder: Path) -> Any:
        write_tree(self.tree, folder)
        return self.answer(folder)

    def damaged(self, folder: Path, random: Random) -> Trial:
        """A trial of a copy with one to three mutations."""
        tree = dict(self.tree)
        done = [mutate(tree, self.others, random) for _ in range(random.choice([1, 1, 1, 1, 2, 3]))]
        kind, exact = done[0][0] if len(done) == 1 else "several", self.exact
        if self.witness is not None and self.witness not in tree:
            exact = False
        if self.reseal is not None and random.random() < 0.4 and self.reseal(tree):
            exact = False
            kind += ", resealed"
        write_tree(tree, folder)
        if random.random() < 0.005:
            kind, done, exact = "no folder", [replace_folder(folder, random)], self.exact
        return Trial(kind, ", ".join(" ".join(each) for each in done), lambda: self.answer(folder), exact)
