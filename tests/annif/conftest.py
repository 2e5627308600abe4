"""A small world for Annif: a vocabulary, documents whose words tell their subjects, and projects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from circlet.data.records import Record, write_records

#: Subjects of the vocabulary; documents have the first eight.
SUBJECTS = ["cats", "dogs", "trains", "bread", "music", "rivers", "stars", "paper", "snow", "glass"]
BASE = "http://example.org/subject/"
WORDS = {subject: [f"{subject}{ending}" for ending in ("ly", "ness", "ful", "ward")] for subject in SUBJECTS}
PROJECT = "[{}]\nlanguage=en\nbackend=circlet\npreset=fast\nvocab={}\n"
PROJECTS = (
    PROJECT.format("plain", "small") + "hidden=64\nepochs=12\n",
    PROJECT.format("learning", "small") + "hidden=64\nepochs=12\nallow_learn=true\n",
    PROJECT.format("filtered", f"small(exclude={BASE}0)"),
)


def uri(subject: str) -> str:
    return f"{BASE}{SUBJECTS.index(subject)}"


def documents(subjects: list[str], n: int, seed: int) -> list[Record]:
    """One or two subjects each, and a word of each."""
    random, found = np.random.default_rng(seed), []
    for number in range(n):
        chosen = random.choice(subjects, 1 + number % 2, replace=False).tolist()
        text = " ".join(random.choice(WORDS[each]) for each in chosen)
        found.append(Record(number, text, tuple(map(uri, chosen))))
    return found


@pytest.fixture
def world(tmp_path) -> Path:
    """A folder with a vocabulary, three corpora and projects, as a user of Annif would have it."""
    lines = "".join(f"<{uri(each)}>\t{each}\n" for each in SUBJECTS)
    (tmp_path / "vocabulary.tsv").write_text(lines, encoding="utf-8")
    (tmp_path / "projects.cfg").write_text("\n".join(PROJECTS), encoding="utf-8")
    write_records(tmp_path / "train.tsv", documents(SUBJECTS[:8], 240, 0), "annif")
    write_records(tmp_path / "test.tsv", documents(SUBJECTS[:8], 40, 1), "annif")
    write_records(tmp_path / "new.tsv", documents(SUBJECTS[8:], 40, 2), "annif")
    return tmp_path
