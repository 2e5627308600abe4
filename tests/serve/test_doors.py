"""Whoever asks, and however the answer is printed: the same labels with the same digits."""

from __future__ import annotations

import csv
import json
import random
from contextlib import nullcontext
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from circlet import CircletClassifier
from circlet.runtime import Threshold, load
from circlet.runtime.answers import Suggestion, rounded
from circlet.serve.served import Served

KNOWN = [*(f"label{number}" for number in range(6)), "one", "two", "three", "four", "five", "six", "seven"]
Answers = list[list[Suggestion]]


def odd_texts() -> list[str]:
    chosen = random.Random(0)
    texts = [
        "", " ", "\n", "label0", "label0", "LABEL0 Label1", "unheard-of", "quze müra", "größer", "日本 を 見る",
        "🦊", "🦊 label2 🦊🦊", "é e\u0301", "Ελληνικά label3", "русский one two", "עברית label4", "123", "null",
        "1e-9 3.14 -7", "label1,label2;label3", 'a "quoted" label4', "it's", "tab\tlabel5\tone", "-", "=1+1",
        "two\nlines label0", "carriage\rlabel1", "\x00label2\x00", "\x07\x1b[31mlabel3\x1b[0m", "\ufefflabel4",
        "\u2028 one", "\u202elabel5", "\u200d\u200dlabel0", "a" * 5000, "label0 " * 3000, "one two three " * 2000,
        '{"text": "label1"}', "__label__x label2", "<b>label3</b> &amp; one", "http://example.org/label4?one=two",
        "C:\\label5\\one", "--threshold 0.5",
    ]  # fmt: skip
    while len(texts) < 200:
        words = chosen.choices(KNOWN, k=chosen.randint(1, 12)) + chosen.choices(texts[:40], k=chosen.randint(0, 2))
        chosen.shuffle(words)
        texts.append(" ".join(words))
    return texts


TEXTS = odd_texts()
ALLOWED = ["red", "日本", "#6"]


@pytest.fixture(scope="module", params=["threshold", "uris", "neither"])
def model(request, shared, tmp_path_factory) -> Path:
    """A model that stores a threshold, one whose labels have URIs, and one with neither."""
    made = copy(shared("texts"))
    made.threshold = 0.31 if request.param == "threshold" else None
    if request.param == "uris":
        made.label_uris = [f"http://example.org/{number}" for number in range(made.n_labels)]
    folder = tmp_path_factory.mktemp("doors") / "model"
    made.save(folder)
    return folder


@pytest.fixture(scope="module", params=[{}, {"favor_rare": 0.7}, {"threshold": 0.25}], ids=str)
def options(request) -> dict[str, float]:
    """What is asked for; labels are cut at the stored threshold where nothing else is."""
    return request.param


@pytest.fixture(scope="module")
def expected(model, options) -> Answers:
    return load(model).answers(TEXTS, 4, **options)


@pytest.fixture(scope="module")
def words(options) -> list[str]:
    given = [(f"--{name.replace('_', '-')}", value) for name, value in options.items()]
    return ["-k", "4", *(word for pair in given for word in pair)]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    rows = (json.dumps({"id": number, "text": text}) + "\n" for number, text in enumerate(TEXTS))
    path.write_text("".join(rows), encoding="utf-8")
    return path


def read(path: Path) -> Answers:
    """What a file says about all texts, in their order."""
    if path.suffix == ".parquet":
        rows = pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    else:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines, delimiter="\t" if path.suffix == ".tsv" else ","))
        for row in rows:
            row.update({name: json.loads(value) for name, value in row.items() if name != "id"})
    rows.sort(key=lambda row: int(row["id"]))
    return [list(map(Suggestion, row["labels"], row["scores"], row.get("uris", [None] * 9))) for row in rows]


def of_service(found: list[dict[str, Any]]) -> Answers:
    return [
        [Suggestion(each["label"], each["probability"], each.get("uri")) for each in row["labels"]]
        for row in found
    ]


def test_the_expected_answers_are_no_trivial_ones(model, options, expected):
    assert len({tuple(each.label for each in row) for row in expected}) > 20
    stored = load(model).model_.threshold
    least = options.get("threshold", stored if not options else None) or 0
    assert (min(map(len, expected)) < 4) == (least > 0)
    assert all(each.score >= least for row in expected for each in row)
    assert all(each.score == rounded(each.score) for row in expected for each in row)


def test_python(model, options, expected):
    """Arrays have all digits of single precision, and are cut only if that is asked for."""
    asked = {"threshold": "auto", **options}
    for tagger in (load(model), CircletClassifier.load(model)):
        assert tagger.answers(TEXTS, 4, **options) == expected
        labels, scores = tagger.suggest(TEXTS, 4, **asked)
        for row, names, chances in zip(expected, labels.tolist(), scores.tolist(), strict=True):
            assert [each.label for each in row] == [name for name in names if name is not None]
            assert [each.score for each in row] == [rounded(chance) for chance in chances[: len(row)]]
        assert tagger.suggest(TEXTS, 4, favor_rare=options.get("favor_rare", 0.0))[0].shape == (200, 4)


def test_only_some_labels_are_allowed(model, options, start):
    wanted = load(model).answers(TEXTS, 4, allowed=ALLOWED, **options)
    assert CircletClassifier.load(model).answers(TEXTS, 4, allowed=ALLOWED, **options) == wanted
    asked = {"texts": TEXTS, "k": 4, "allowed": ALLOWED, **options}
    found = start([Served.load(model, "m")]).post("/v1/models/m/suggest", json=asked).json()["results"]
    assert of_service(found) == wanted
    assert {each.label for row in wanted for each in row} == set(ALLOWED)


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "parquet"])
def test_predict_into_files(circlet, model, options, words, source, expected, tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out.{ending}"
    finished = circlet("predict", model, source, *words, "--output", path)
    assert finished.returncode == 0, finished.stderr
    assert read(path) == expected


def test_predict_from_standard_input(circlet, model, words, source, expected, tmp_path):
    finished = circlet("predict", model, "-", *words, stdin=source.read_bytes())
    assert finished.returncode == 0, finished.stderr
    (tmp_path / "out.jsonl").write_text(finished.stdout, encoding="utf-8")
    check_close(read(tmp_path / "out.jsonl"), expected)  # it is answered in other batches


def check_close(found: Answers, wanted: Answers) -> None:
    """Products of more rows are added up in another order, on which the last of six digits may depend."""
    for one, other in zip(found, wanted, strict=True):
        assert [(each.label, each.uri) for each in one] == [(each.label, each.uri) for each in other]
        np.testing.assert_allclose([each.score for each in one], [each.score for each in other], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_an_engine(circlet, model, options, words, source, expected, tmp_path, kind):
    check_engine(circlet, model, options, words, source, expected, tmp_path / "out", kind)


def test_an_engine_once(circlet, shared, source, tmp_path):
    made = copy(shared("texts"))
    made.threshold = 0.31
    made.save(tmp_path / "model")
    expected = load(tmp_path / "model").answers(TEXTS)
    check_engine(circlet, tmp_path / "model", {}, [], source, expected, tmp_path / "out", "jsonl")


def check_engine(circlet, model, options, words, source, expected, output, kind):
    command = ["--engine", "processes", "--workers", "1", "--format", kind, "--json", "--output", output]
    finished = circlet("predict", model, source, *words, *command)
    assert finished.returncode == 0, finished.stderr
    said = json.loads(finished.stdout)
    assert (said["threshold"], said["threshold_from"]) == used_by(model, options)
    (part,) = output.glob("part-*")
    assert read(part) == expected


def used_by(model: Path, options: dict[str, float]) -> Threshold:
    asked, favor_rare = options.get("threshold", "auto"), options.get("favor_rare", 0.0)
    return load(model).ranking_threshold(asked, favor_rare=favor_rare)


def test_the_service(model, options, expected, start):
    client, tagger = start([Served.load(model, "m")]), load(model)
    several = client.post("/v1/models/m/suggest", json={"texts": TEXTS, "k": 4, **options}).json()
    assert (several["threshold"], several["threshold_from"]) == used_by(model, options)
    assert of_service(several["results"]) == expected
    for text, wanted in list(zip(TEXTS, expected, strict=True))[:50]:
        (alone,) = client.post("/v1/models/m/suggest", json={"text": text, "k": 4, **options}).json()["results"]
        assert of_service([alone]) == tagger.answers(text, 4, **options)
        check_close(of_service([alone]), [wanted])


def test_the_service_in_annifs_dialect(model, start):
    client, tagger = start([Served.load(model, "m")]), load(model)
    for asked, threshold in (({}, None), ({"threshold": "0.25"}, 0.25)):  # Annif cuts only if it is asked to
        for text in TEXTS[:50]:
            form = {"text": text, "limit": "4", **asked}
            found = client.post("/v1/projects/m/suggest", data=form).json()["results"]
            (wanted,) = tagger.answers(text, 4, threshold=threshold)
            assert [(each["label"], each["score"]) for each in found] == [
                (each.label, each.score) for each in wanted
            ]
            assert [each["uri"] for each in found] == [each.uri or each.label for each in wanted]


@pytest.mark.parametrize("favor_rare", [0.0, 0.7])
def test_the_backend_of_annif(model, favor_rare):
    """Texts without a known word get nothing; Annif ranks by scores, so rare subjects are favored by these."""
    pytest.importorskip("annif")
    from circlet.annif.backend import CircletBackend

    tagger = load(model)
    backend: Any = SimpleNamespace(_explained=nullcontext, project=SimpleNamespace(subjects=range(6)))
    params = {"limit": 4, "favor_rare": favor_rare}
    found = CircletBackend.batch(backend, tagger, np.arange(6), TEXTS, params)
    known = np.diff(tagger.model_.vectorizer.entries(TEXTS).starts) > 0
    answers = tagger.answers(TEXTS, 4, threshold=None, favor_rare=favor_rare)
    for has_words, answer, suggested in zip(known, answers, found, strict=True):
        labels = [tagger.classes_[each.subject_id] for each in suggested]
        assert labels == ([each.label for each in answer] if has_words else [])
        if not favor_rare and has_words:
            assert [rounded(each.score) for each in suggested] == [each.score for each in answer]
