"""The vocabulary is enough to make rows: by a tokenizer in Python that knows nothing else, and by the page's."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
import unicodedata
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from tests.conformance import Graph, inputs_of, make_model, scores_of

from circlet.export.write import WORD, vocabulary
from circlet.features.vectorizer import TextVectorizer, word_pattern

PAGE = Path(__file__).parents[2] / "docs/export.md"
TEXTS = [
    "A red fox, a Red car: x² foo_bar",
    "हिन्दी में लिखा",
    "می\u200cخواهم العَرَبِيَّة",
    "Съешь ещё этих ΟΔΟΣ",
    "日本のデータ 我爱数据。葛\U000e0100城",
    "caf\u00e9 cafe\u0301 ＣＡＦÉ İstanbul",
    "𞤀𞤣𞤤𞤢𞤥\U0001e944 cat 👍🏽 ❤️ !?",
    "x\udc00y of half a character",
    "one\u0085two\x1cthree\u3000four\ufefffive\n\n a  I",
    "",
    "！",
]
KINDS = [
    {},
    {"word_ngrams": (1, 2), "char_ngrams": (2, 4)},
    {"word_ngrams": (2, 3), "sublinear_tf": False, "lowercase": False},
    {"word_ngrams": None, "char_ngrams": (4, 5)},
]


@cache
def expanded(pattern: str) -> re.Pattern[str]:
    """The pattern as Python understands it, with a list of characters for each class."""
    for letter in "LNM":
        own = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == letter]
        breaks = np.flatnonzero(np.diff(own) > 1)
        starts, ends = np.array(own)[[0, *(breaks + 1)]], np.array(own)[[*breaks, -1]]
        ranges = "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends, strict=True))
        pattern = pattern.replace(f"\\p{{{letter}}}", ranges)
    return re.compile(pattern)


def terms(text: str, part: dict) -> list[str]:
    shortest, longest = part["ngrams"]
    if part["kind"] == "word":
        found = expanded(part["pattern"]).findall(text)
        sizes = range(shortest, longest + 1)
        return [" ".join(found[i : i + n]) for n in sizes for i in range(len(found) - n + 1)]
    out = []
    for piece in re.split(r"[\s\x1c-\x1f]+", text):
        padded = f" {piece} "
        for n in range(shortest, longest + 1) if piece else ():
            if len(padded) <= n:
                out.append(padded)
                break
            out += [padded[i : i + n] for i in range(len(padded) - n + 1)]
    return out


def row(text: str, made: dict) -> dict[int, float]:
    """The steps of the file, one by one."""
    text = unicodedata.normalize("NFKC", re.sub("[\ud800-\udfff]", "\ufffd", text))
    text = text.lower() if made["lowercase"] else text
    whole: dict[int, float] = {}
    for part in made["parts"]:
        column = {term: i for i, term in enumerate(part["terms"])}
        counts = Counter(term for term in terms(text, part) if term in column)
        weighted = {}
        for term, n in counts.items():
            weighted[column[term]] = (1 + math.log(n) if made["sublinear_tf"] else n) * part["idf"][column[term]]
        norm = math.hypot(*weighted.values()) or 1
        whole |= {part["first_column"] + i: value / norm for i, value in weighted.items()}
    norm = math.hypot(*whole.values()) or 1
    return {i: value / norm for i, value in whole.items()}


def rows(found: list[dict[int, float]], n_features: int) -> np.ndarray:
    dense = np.zeros((len(found), n_features), dtype=np.float32)
    for i, each in enumerate(found):
        dense[i, list(each)] = list(each.values())
    return dense


def fitted(**parameters) -> tuple[csr_matrix, dict]:
    """Rows of all texts by a vectorizer that knows the terms of most of them, and its vocabulary out of JSON."""
    vectorizer = TextVectorizer(**parameters).fit(TEXTS[:-3])
    return vectorizer.transform(TEXTS), json.loads(json.dumps(vocabulary(vectorizer)))


@pytest.mark.parametrize("parameters", KINDS)
def test_is_enough_to_make_rows(parameters):
    wanted, made = fitted(**parameters)
    assert made["n_features"] == wanted.shape[1]
    assert wanted.nnz > 20
    found = rows([row(text, made) for text in TEXTS], made["n_features"])
    np.testing.assert_allclose(found, wanted.toarray(), rtol=1e-6)


def test_from_texts_to_labels_with_the_exported_files_alone(tmp_path):
    model = make_model("texts", text=KINDS[1], train=TEXTS[:-3])
    new = ["A brown fox", "ещё データ データ", "…", *TEXTS]
    model.save(tmp_path / "model")
    graph = Graph(tmp_path / "model", model)
    made = json.loads((tmp_path / "model-5.vocabulary.json").read_text())
    found = csr_matrix(rows([row(text, made) for text in new], made["n_features"]))
    (scores,) = graph.session.run(["scores"], inputs_of(found))
    np.testing.assert_allclose(scores, scores_of(model, new), atol=1e-5)


def test_says_how():
    _, made = fitted(char_ngrams=(2, 3))
    assert made["format"] == 1
    assert [part["kind"] for part in made["parts"]] == ["word", "char"]
    assert made["parts"][1]["first_column"] == len(made["parts"][0]["terms"])
    steps = " ".join(made["steps"])
    for word in ("NFKC", "lowercase", "pattern", "ngrams", "White_Space", "sublinear_tf", "idf", "Euclidean"):
        assert word in steps
    _, words = fitted()
    assert "White_Space" not in " ".join(words["steps"])


ALPHABET = "aZ_7²é\u0301\u200c\u200d\u3099の日〇々⺀\ufe0f𠀀𞤀\U0001e944\U000e0100 .!👍ー漢ि"


@given(st.text(ALPHABET, max_size=12) | st.text(max_size=12))
@example("\u3099\u309a")
def test_pattern_is_the_original(text):
    assert expanded(WORD).findall(text) == re.findall(word_pattern(), text)


@pytest.mark.slow
def test_pattern_agrees_on_every_character():
    """On a letter, a mark and nothing, each followed by each of all characters."""
    for before in ("a", "\u0301", " "):
        text = "".join(f"{before}{chr(code)} " for code in range(sys.maxunicode + 1))
        assert expanded(WORD).findall(text) == re.findall(word_pattern(), text)


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")
@pytest.mark.skipif(not PAGE.exists(), reason="not a source checkout")
def test_javascript_of_the_page_makes_the_same_rows(tmp_path):
    tokenizer, _ = re.findall(r"```js\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for i, parameters in enumerate(KINDS):
        (tmp_path / f"{i}.json").write_text(json.dumps(fitted(**parameters)[1]))
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    script = tmp_path / "run.mjs"
    script.write_text(
        'import { readFileSync } from "node:fs";\n'
        f"{tokenizer}\n"
        "const read = (name) => JSON.parse(readFileSync(name));\n"
        f"const made = [...Array({len(KINDS)}).keys()].map((i) => read(`${{i}}.json`));\n"
        "const rows = made.map((each) => read('texts.json').map((text) => rowOf(text, each)));\n"
        "const plain = ({ columns, values }) => [[...columns], [...values]];\n"
        "console.log(JSON.stringify(rows.map((each) => each.map(plain))));\n",
        encoding="utf-8",
    )
    printed = subprocess.run(
        ["node", script.name], cwd=tmp_path, capture_output=True, check=True, encoding="utf-8"
    ).stdout
    for found, parameters in zip(json.loads(printed), KINDS, strict=True):
        wanted, made = fitted(**parameters)
        dense = rows([dict(zip(*each, strict=True)) for each in found], made["n_features"])
        np.testing.assert_allclose(dense, wanted.toarray(), rtol=1e-6)
