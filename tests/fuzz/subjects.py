"""What is damaged: folders and rows of every kind, with a question that each can answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

from tests.fuzz.damage import mutate
from tests.fuzz.trees import Tree, replace_folder, write_tree

__all__ = ["FolderSubject", "Subject", "Trial"]


@dataclass(frozen=True)
class Trial:
    """Something damaged, ready to be asked.

    Parameters
    ----------
    mutation : str
        What was done to it, by name.
    details : str
        The same with the files that it was done to.
    ask : callable
        Gives the answer, or raises an error.
    exact : bool
        Whether any answer other than that of the undamaged subject is wrong. If not, `ask` itself asserts
        everything that can be said about an answer.
    """

    mutation: str
    details: str
    ask: Callable[[], Any]
    exact: bool


class Subject(Protocol):
    """Something that can be damaged."""

    name: str
    weight: float

    def intact(self, folder: Path) -> Trial:
        """A trial of the subject as it should be, in this folder."""

    def damaged(self, folder: Path, random: Random) -> Trial:
        """A trial of a damaged copy, in this folder."""


@dataclass
class FolderSubject:
    """A folder of files.

    Parameters
    ----------
    name : str
    tree : Tree
    others : list of Tree
        Folders that files may be mixed up with.
    answer : callable
        Takes the path of a folder; see `Trial`.
    exact : bool
    reseal : callable, optional
        Makes the digests in a damaged tree right again, if it can, so that what lies behind them is tested too.
    witness : str, optional
        A file without which nothing tells what the answer should be.
    weight : float
        How often it is chosen.
    """

    name: str
    tree: Tree
    others: list[Tree]
    answer: Callable[[Path], Any]
    exact: bool = True
    reseal: Callable[[Tree], bool] | None = None
    witness: str | None = None
    weight: float = 1.0

    def intact(self, folder: Path) -> Trial:
        """A trial of the folder as it should be."""
        write_tree(self.tree, folder)
        return Trial("none", "", lambda: self.answer(folder), self.exact)

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
