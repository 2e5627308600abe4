"""A model small enough to check by hand: a label's score is a base plus a weight for each word that it knows.

It answers as the real one does: probabilities, explanations that add up, and learning that takes effect as a new
version.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

#: Of each label: in how many documents it is, its base, and the weights of words.
LABELS: dict[str, tuple[int, float, dict[str, float]]] = {
    "package: python": (4120, 3.0, {"eigenvalue": -3.2, "cross": -4.0, "sparse": -2.5, "event": 1.5, "mail": 1.2}),
    "kind: function": (3911, 0.4, {"solve": 1.1, "split": 1.3, "open": 0.6, "return": 0.9, "loop": -0.8}),
    "kind: method": (2764, 0.1, {"run": 0.9, "connection": 0.7, "send": 0.6, "event": 0.4, "solve": -0.9}),
    "kind: class": (1043, -1.2, {"connection": 0.5, "archive": 0.9, "problem": -0.4}),
    "package: scipy": (
        1240,
        -2.0,
        {"sparse": 2.6, "eigenvalue": 2.9, "solve": 0.8, "symmetric": 1.1, "event": -1.0},
    ),
    "package: sklearn": (880, -2.2, {"training": 2.4, "test": 1.0, "cross": 1.6, "validation": 1.7, "data": 0.7}),
    "package: numpy": (1011, -2.1, {"matrix": 1.8, "symmetric": 0.7, "random": 1.5, "samples": 0.9}),
    "module: asyncio": (
        203,
        -4.0,
        {"event": 2.7, "loop": 2.2, "coroutines": 3.4, "mail": -1.4, "concurrently": 1.6},
    ),
    "module: asyncio.events": (61, -4.6, {"event": 2.9, "loop": 1.6, "server": -0.6}),
    "module: smtplib": (24, -4.2, {"mail": 4.1, "send": 1.1, "server": 1.2, "loop": -0.9}),
    "module: email": (96, -3.6, {"mail": 2.5, "message": 2.4, "zip": -0.7}),
    "module: zipfile": (31, -4.1, {"zip": 4.4, "archive": 2.8, "compress": 1.4, "message": -0.8}),
    "module: scipy.sparse.linalg": (84, -4.4, {"sparse": 3.1, "eigenvalue": 3.0, "solve": 1.0, "split": -0.7}),
    "module: scipy.linalg": (102, -4.1, {"eigenvalue": 2.8, "symmetric": 1.5, "sparse": -1.1}),
    "module: sklearn.model_selection": (71, -4.0, {"split": 2.2, "cross": 2.6, "validation": 2.4, "sparse": -0.9}),
    "takes: n": (143, -3.0, {"random": 1.1, "samples": 1.6}),
    "takes: loop": (33, -3.4, {"loop": 2.6, "event": 0.5}),
    "takes: A": (88, -3.1, {"eigenvalue": 1.9, "sparse": 0.6, "matrix": 1.7}),
    "takes: test_size": (12, -3.9, {"split": 1.7, "test": 1.9, "training": 1.1}),
    "takes: host": (41, -3.5, {"server": 2.1, "connection": 1.7}),
}
WORD = re.compile(r"\w+")
TAUGHT = 3.0  # what a lesson adds to each long word of its text
NEW_BASE = -4.0  # of a label that was unknown
TRAINING = {
    "data": "pydocs",
    "format": "JSONL text, train and test files",
    "documents": 7982,
    "preset": "balanced",
}
DECIDED = [
    {"setting": "validation", "value": 300, "why": "enough to decide and to calibrate"},
    {"setting": "scaling", "value": "none", "why": "tf-idf has weighted the words"},
    {"setting": "char_ngrams", "value": None, "why": "words are enough"},
    {"setting": "dim", "value": 800, "why": "as the preset says"},
    {
        "setting": "hidden",
        "value": [512],
        "why": "enough for few texts, whose many features would make more of it large",
    },
    {"setting": "first_layer", "value": "sgd", "why": "usually better for sparse features"},
    {"setting": "epochs", "value": 12, "why": "few documents need more epochs"},
    {"setting": "batch_size", "value": 128, "why": "few documents make few steps, unless these are small"},
]
CURVE = (0.412, 0.587, 0.688, 0.741, 0.779, 0.803, 0.819, 0.834, 0.845, 0.852, 0.859, 0.863)
PARTS = {
    "weights.safetensors": 42_376_924,
    "vectorizer.json": 234_575,
    "vectorizer.safetensors": 152_720,
    "sample.safetensors": 103_824,
    "labels.txt": 18_228,
    "config.json": 3_514,
}


@dataclass
class Entry:
    id: str
    text: str
    accept: list[str]
    reject: list[str]
    version: str
    undone: bool = False

    def as_dict(self) -> dict[str, Any]:
        time = f"2026-01-01T00:00:{int(self.id):02d}Z"
        return {**self.__dict__, "time": time}


@dataclass
class FakeModel:
    id: str
    takes: str = "texts"
    has_index: bool = True
    can_learn: bool = True
    polls_to_learn: int = 2  # how often somebody asks "still learning?" before it is done
    entries: list[Entry] = field(default_factory=list)
    #: The number of each version, and the lessons that it knows; the last one is served.
    versions: list[tuple[int, list[Entry]]] = field(default_factory=lambda: [(0, [])])
    last: int = 0
    left: int = 0

    @property
    def version(self) -> str:
        """What answers call it: the model as it was trained has a digest, and taught versions have numbers."""
        return str(self.versions[-1][0]) if self.last else "5f0c3a9be1d2"

    def weights(self) -> dict[str, tuple[int | None, float, defaultdict[str, float]]]:
        known: dict[str, tuple[int | None, float, defaultdict[str, float]]] = {
            label: (documents, base, defaultdict(float, words))
            for label, (documents, base, words) in LABELS.items()
        }
        for entry in self.versions[-1][1]:
            for label, value in [
                *((each, TAUGHT) for each in entry.accept),
                *((each, -TAUGHT) for each in entry.reject),
            ]:
                _, _, words = known.setdefault(label, (None, NEW_BASE, defaultdict(float)))
                for word in {word for word in WORD.findall(entry.text.lower()) if len(word) > 4}:
                    words[word] += value
        return known

    def explain(self, text: str, label: str) -> dict[str, Any]:
        _, base, words = self.weights()[label]
        found: dict[str, list[list[int]]] = {}
        for match in WORD.finditer(text):
            if words.get(match[0].lower()):
                found.setdefault(match[0].lower(), []).append(list(match.span()))
        contributions = [
            {"term": word, "kind": "word", "value": words[word] * len(spans), "spans": spans}
            for word, spans in sorted(found.items(), key=lambda item: -abs(words[item[0]] * len(item[1])))
        ]
        score = base + sum(each["value"] for each in contributions)
        spans = sorted([*span, words[word]] for word, all_spans in found.items() for span in all_spans)
        return {
            "label": label,
            "score": score,
            "base": base,
            "probability": 1 / (1 + math.exp(-score)),
            "contributions": contributions,
            "spans": spans,
        }

    def suggest(self, text: str, k: int = 5, threshold: float = 0, favor_rare: float = 0) -> list[dict[str, Any]]:
        found = []
        for label, (documents, _, _) in self.weights().items():
            probability = self.explain(text, label)["probability"]
            gain = probability * (4120 / (documents or 1)) ** (favor_rare / 2)
            found.append((gain, {"label": label, "probability": round(probability, 6)}))
        found.sort(key=lambda item: (-item[0], item[1]["label"]))
        return [each for _, each in found if each["probability"] >= threshold][:k]

    def similar(self, text: str, k: int) -> list[dict[str, Any]]:
        names = [
            "asyncio.events.AbstractEventLoop.run_forever",
            "smtplib.SMTP.send_message",
            "zipfile.ZipFile.write",
        ]
        names += ["scipy.sparse.linalg.eigsh", "sklearn.model_selection.train_test_split"]
        words = {word[:4] for word in WORD.findall(text.lower())}
        scored = [(len({part[:4] for part in re.split(r"[._]", name.lower())} & words), name) for name in names]
        return [
            {"id": name, "similarity": round(0.31 + 0.17 * hits, 4)}
            for hits, name in sorted(scored, key=lambda item: (-item[0], item[1]))[:k]
        ]

    def labels(self, query: str, limit: int) -> dict[str, Any]:
        known, query = self.weights(), query.casefold()
        matches = [label for label in known if query in label.casefold()]
        matches.sort(key=lambda label: (not label.casefold().startswith(query), -(known[label][0] or 0)))
        return {
            "labels": [{"label": label, "documents": known[label][0]} for label in matches[:limit]],
            "total": len(matches),
        }

    def near(self, label: str, k: int) -> list[dict[str, Any]]:
        """By how many words two labels share: 1 if they know the same ones."""
        known = self.weights()
        own = set(known[label][2])
        shared = [(len(own & set(words)) / len(own | set(words)), other) for other, (_, _, words) in known.items()]
        best = sorted((-value, other) for value, other in shared if other != label)[:k]
        return [{"label": other, "similarity": -value} for value, other in best]

    def teach(self, text: str, accept: list[str], reject: list[str]) -> Entry:
        entry = Entry(str(len(self.entries) + 1), text, accept, reject, self.version)
        self.entries.append(entry)
        self.left = self.polls_to_learn
        return entry

    def undo(self, entry: Entry) -> None:
        entry.undone = True
        self.left = self.polls_to_learn

    def roll_back(self) -> None:
        self.versions.pop()

    def learning(self, poll: bool = False) -> dict[str, Any]:
        if poll and self.left:
            self.left -= 1
            if not self.left:
                self.last += 1
                self.versions.append((self.last, [entry for entry in self.entries if not entry.undone]))
        return {
            "state": "learning" if self.left else "idle",
            "version": str(self.versions[-1][0]),
            "taught": len(self.versions[-1][1]),
            "waiting": 0,
            "can_roll_back": len(self.versions) > 1,
            "message": None,
        }

    def summary(self) -> dict[str, Any]:
        labels = len(self.weights())
        return {"id": self.id, "labels": labels, "documents": 7982, "takes": self.takes, "version": self.version}

    def card(self) -> dict[str, Any]:
        history = [{"epoch": i + 1, "loss": 9 / (i + 1), "nDCG@5": value} for i, value in enumerate(CURVE)]
        return {
            **self.summary(),
            "features": 19_080,
            "bytes": sum(PARTS.values()),
            "parts": [{"name": name, "bytes": size} for name, size in PARTS.items()],
            "parameters": {"encoder": 9_769_472, "head": 820_800, "loss": 1_621, "total": 10_591_893},
            "history": history,
            "metric": "nDCG@5",
            "decided": DECIDED,
            "training": TRAINING,
            "has_index": self.has_index,
            "can_learn": self.can_learn,
            "threshold": 0.35,
        }
