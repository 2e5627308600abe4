from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.training.runs import Recorder

from circlet.data.dataset import Split, as_labels
from circlet.errors import DataError
from circlet.features.rows import Scaling
from circlet.metrics import evaluate
from circlet.model import fit, plan
from circlet.model.plan import Decider, Trial
from circlet.settings import EFFORTS, Decision, NetworkSettings, RunSettings, TrainingSettings
from circlet.settings.auto import DECIDABLE, VERY_MANY
from circlet.storage.layout import DECIDED
from circlet_paper.synthetic import make_multilabel

HELD_OUT = np.arange(0, 30, 3)
#: Small, and everything else is left open.
SMALL = {"hidden": (16,), "dim": 24, "epochs": 3, "batch_size": 16}
FEWEST_ROWS = Trial().fewest_rows
FOUND = Decision("first_layer", "same", "better in a trial", tried=True)


@pytest.fixture
def trial(monkeypatch) -> list[tuple[Any, ...]]:
    """What a trial is asked, in place of one."""
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(plan, "first_layer", lambda *arguments: calls.append(arguments) or FOUND)
    return calls


def rows(n: int, kind: str = "sparse") -> Split:
    """Row i has the feature i % 7."""
    X = sp.csr_matrix((np.ones(n, np.float32), (np.arange(n), np.arange(n) % 7)), shape=(n, 7))
    Y = sp.csr_matrix((np.ones(n, np.float32), (np.arange(n), np.arange(n) % 3)), shape=(n, 3))
    if kind == "texts":
        return Split(None, Y, [f"word{i % 7}" for i in range(n)])
    return Split(X.toarray() if kind == "dense" else X, Y)


def decide(decider: Decider, held_out: Any = HELD_OUT) -> RunSettings:
    """By rule, then by a trial, as `fit` does it."""
    decider.by_rule()
    if decider.tries(held_out):
        decider.by_trial(decider.split.X, held_out, (None, decider.split.Y[held_out]))
    return decider.settings


def write(folder: Path, *decisions: Decision) -> Path:
    path = folder / DECIDED
    path.write_text(json.dumps([each.as_dict() for each in decisions]), encoding="utf-8")
    return path


class TestByRule:
    @pytest.mark.parametrize(
        ("kind", "scaling", "first_layer"),
        [("sparse", "sqrt", "sgd"), ("dense", "standard", "same"), ("texts", "none", "sgd")],
    )
    def test_looks_at_the_kind_of_documents(self, kind, scaling, first_layer):
        decider = Decider(rows(50, kind), RunSettings.from_preset("default", {}))
        settings = decider.by_rule()
        assert settings is decider.settings
        assert (settings.scaling, settings.training.first_layer) == (scaling, first_layer)
        assert settings.undecided == frozenset()
        assert [each.name for each in decider.decisions] == list(DECIDABLE)

    def test_rows_that_never_join_are_few(self):
        """Holding out many of few documents is free only if the model learns from them in the end."""
        joined, apart = (
            Decider(rows(1000), RunSettings.from_preset("default", {"join": join})).by_rule().validation
            for join in (True, False)
        )
        assert (joined, apart) == (300, 100)

    @pytest.mark.parametrize(
        ("labels", "few"),
        [
            # 0 to 9 once, and 10 ten times: half of all labels of documents are of labels with one.
            ([*range(10), *[10] * 10], True),
            # 0 to 8 once, and 9 ten times: most of all are the same.
            ([*range(9), *[9] * 10], False),
        ],
    )
    def test_looks_at_what_a_typical_label_has(self, labels, few):
        n = len(labels)
        Y = sp.csr_matrix((np.ones(n, np.float32), (np.arange(n), labels)), shape=(n, 11))
        decider = Decider(Split(rows(n).X, Y), RunSettings.from_preset("default", {}))
        assert decider.by_rule().training.first_layer == ("same" if few else "sgd")

    def test_looks_at_the_numbers_of_documents_and_labels(self):
        settings = Decider(rows(19), RunSettings.from_preset("default", {})).by_rule()
        assert settings.validation == 0
        assert 3 < settings.network.dim < 100


class TestByTrial:
    @pytest.mark.parametrize("preset", sorted(EFFORTS))
    def test_its_finding_replaces_the_rules(self, preset, trial):
        decider = Decider(rows(FEWEST_ROWS + 10), RunSettings.from_preset(preset, SMALL, seed=2))
        ruled = decider.by_rule()
        before = list(decider.decisions)
        assert decider.tries(HELD_OUT) == EFFORTS[preset].trial
        if not EFFORTS[preset].trial:
            return
        settings = decider.by_trial("rows", HELD_OUT, ("held out", None))
        assert settings == replace(ruled, training=replace(ruled.training, first_layer=FOUND.value))
        assert decider.decisions == [FOUND if each.name == "first_layer" else each for each in before]
        assert FOUND in decider.decisions

    @pytest.mark.parametrize(
        ("more", "kind", "held_out", "given", "times"),
        [
            (10, "sparse", HELD_OUT, {}, 1),
            (10, "texts", HELD_OUT, {}, 1),
            (10, "dense", HELD_OUT, {}, 0),  # where a rule is sure
            (10, "sparse", None, {}, 0),
            (0, "sparse", HELD_OUT, {}, 1),
            (-1, "sparse", HELD_OUT, {}, 0),  # too few that are not held out
            (10, "sparse", HELD_OUT, {"first_layer": "sgd"}, 0),
            (10, "sparse", HELD_OUT, {"first_layer": "same"}, 0),
        ],
    )
    def test_what_it_needs(self, more, kind, held_out, given, times, trial):
        split = rows(FEWEST_ROWS + len(HELD_OUT) + more, kind)
        settings = decide(Decider(split, RunSettings.from_preset("default", {**SMALL, **given})), held_out)
        assert len(trial) == times
        if kind == "sparse":
            assert settings.training.first_layer == (FOUND.value if times else given.get("first_layer", "sgd"))


class TestResumed:
    def test_decisions_stand_even_if_rules_would_decide_otherwise(self, trial, tmp_path):
        known = [Decision("dim", 72, "then"), Decision("hidden", (9, 5), "then"), Decision("epochs", 11, "then")]
        known += [Decision("first_layer", "same", "then", tried=True), Decision("min_df", 1, "then")]
        write(tmp_path, *known)
        given = {"scaling": "l2", "validation": 0.1, "dropout": 0.5, "batch_size": 16, "max_features": 9}
        left_open = RunSettings.from_preset("default", {**given, "lr": 0.1, "char_ngrams": (1, 2)})
        decider = Decider(rows(FEWEST_ROWS + 10), left_open, resumed=tmp_path)
        settings = decide(decider)
        assert decider.decisions == known
        assert (settings.network.dim, settings.network.hidden) == (72, (9, 5))
        assert (settings.training.epochs, settings.training.first_layer) == (11, "same")
        assert not trial

    def test_without_the_file_everything_is_decided_now(self, tmp_path):
        left_open = RunSettings.from_preset("default", {})
        expected = decide(Decider(rows(50), left_open))
        assert decide(Decider(rows(50), left_open, resumed=tmp_path)) == expected
        assert decide(Decider(rows(50), left_open, resumed=tmp_path / "nowhere")) == expected

    def test_what_is_given_now_stands(self, tmp_path):
        write(tmp_path, Decision("dim", 40, "then"), Decision("epochs", 9, "then"))
        decider = Decider(rows(50), RunSettings.from_preset("default", {"dim": 8}), resumed=tmp_path)
        settings = decider.by_rule()
        assert (settings.network.dim, settings.training.epochs) == (8, 9)
        assert settings.undecided == frozenset()  # what was not decided then is decided now
        assert {each.name for each in decider.decisions} == {*DECIDABLE} - {"dim"}

    @pytest.mark.parametrize(
        "content",
        [
            *("", "[", "7", "null", '["dim"]', "[{}]", b"\xff\xfe\x00".decode("latin-1")),
            '[{"setting": "dim", "value": 72}]',
            '[{"setting": "dim", "value": -1, "why": "then", "tried": false}]',
            '[{"setting": "hidden", "value": ["wide"], "why": "then", "tried": false}]',
            '[{"setting": ["dim"], "value": 72, "why": "then", "tried": false}]',
        ],
    )
    def test_damage(self, content, tmp_path):
        path = tmp_path / DECIDED
        path.write_text(content, encoding="latin-1")
        with pytest.raises(DataError, match="found no readable decisions") as error:
            Decider(rows(50), RunSettings.from_preset("default", {}), resumed=tmp_path)
        assert str(error.value).startswith(f"{path}: ")
        assert "train again in another folder" in str(error.value)


class TestInFit:
    def test_a_model_is_trained_as_decided_and_knows_why(self, trial):
        reporter, given = Recorder(), rows(FEWEST_ROWS + 600)
        model = fit(given, RunSettings.from_preset("default", SMALL), reporter=reporter)
        assert model.training["first_layer"] == FOUND.value
        assert [Decision.from_dict(each) for each in model.training["decided"]] == reporter.decisions[0]
        assert FOUND in reporter.decisions[0]
        # The trial learns and is judged on different rows.
        ((scaled, _, learned, (judged, right), settings, _),) = trial
        held_out = np.setdiff1d(np.arange(given.n), learned)
        np.testing.assert_array_equal(held_out, settings.held_out(given.n))
        assert scaled.shape == given.X.shape
        assert judged.shape == (len(held_out), given.X.shape[1])
        assert (right != given.Y[held_out]).nnz == 0

    @pytest.mark.parametrize("changes", [{"patience": 2}, {"join": False}, {"validation": 0}], ids=str)
    def test_no_trial_without_rows_that_join(self, changes, trial):
        model = fit(rows(FEWEST_ROWS + 600), RunSettings.from_preset("default", {**SMALL, **changes}))
        assert not trial
        assert model.training["first_layer"] == "sgd"

    def test_a_resumed_run_uses_what_its_folder_says(self, split, tmp_path):
        write(tmp_path, Decision("dim", 40, "then"), Decision("scaling", "l2", "then"))
        left_open = {name: value for name, value in SMALL.items() if name != "dim"}
        settings = RunSettings.from_preset("default", left_open)
        resumed = fit(split("sparse"), settings, folder=tmp_path, resume=True)
        assert (resumed.network.settings.dim, resumed.scaling.kind) == (40, "l2")
        anew = fit(split("sparse"), settings, folder=tmp_path)
        assert anew.network.settings.dim != 40
        saved = json.loads((tmp_path / DECIDED).read_text(encoding="utf-8"))
        assert saved == anew.training["decided"]

    def test_nothing_undecided_leaves_no_trace(self, split, tmp_path):
        reporter = Recorder()
        write(tmp_path, Decision("dim", 40, "of a run that was never resumed"))
        settings = RunSettings.of({**SMALL, "scaling": "l2"})
        model = fit(split("sparse"), settings, folder=tmp_path, reporter=reporter)
        assert "decided" not in model.training
        assert reporter.decisions == [[]]
        assert not (tmp_path / DECIDED).exists()


N, JUDGED = 300, 80
MADE = make_multilabel(N, 120, 20, seed=0, n_test=JUDGED, labels_per_row=2, words_per_row=15)
ROWS, Y = Scaling("sqrt").fit(MADE.train.X).transform(MADE.train.X), MADE.train.Y
NEW = Scaling("sqrt").fit(MADE.train.X).transform(MADE.test.X), MADE.test.Y
SETTINGS = RunSettings(NetworkSettings(dim=32, hidden=(24,)))

SHORT = Trial(most_rows=200, training=TrainingSettings(epochs=2, batch_size=32, lr=0.01))


def try_out(settings: RunSettings = SETTINGS, size: Trial = SHORT, **changes: Any) -> Decision:
    given = {"rows": ROWS, "Y": Y, "learned": np.arange(N), "evaluated": NEW, **changes}
    return plan.first_layer(**given, settings=settings, device=None, size=size)


def timeless(decision: Decision) -> Decision:
    why, times = re.subn(r"which took [0-9.]+ s: ", "", decision.why)
    assert times == 1
    return replace(decision, why=why)


def numbers(decision: Decision) -> tuple[int, float, float]:
    """Rows, and nDCG@5 of SGD and of the other, in percent."""
    found = re.fullmatch(
        r"nDCG@5 of a trial on ([0-9,]+) rows, which took [0-9.]+ s: SGD ([0-9.]+), [a-z]+ ([0-9.]+)", decision.why
    )
    return int(found[1].replace(",", "")), float(found[2]), float(found[3])


@pytest.fixture
def trainings(monkeypatch) -> list[tuple[int, TrainingSettings, NetworkSettings]]:
    """What is trained on the way: the number of rows, and the settings of training and network."""
    made, train = [], plan.train

    def watch(network: Any, X: Any, Y: Any, settings: TrainingSettings, **options: Any) -> Any:
        made.append((X.shape[0], settings, network.settings))
        return train(network, X, Y, settings, **options)

    monkeypatch.setattr(plan, "train", watch)
    return made


class TestTrial:
    def test_it_is_one_of_the_two_and_the_seed_determines_it(self):
        torch.manual_seed(1)
        found = try_out()
        assert (found.name, found.tried) == ("first_layer", True)
        rows, sgd, same = numbers(found)
        assert rows == 200
        assert 0 < sgd < 100
        assert 0 < same < 100
        assert sgd != same
        assert found.value == ("sgd" if sgd > same else "same")
        torch.manual_seed(2)
        assert timeless(try_out()) == timeless(found)
        other = try_out(replace(SETTINGS, network=replace(SETTINGS.network, seed=1)))
        assert timeless(other).why != timeless(found).why

    @pytest.mark.parametrize(("sgd", "same", "best"), [(0.5, 0.4, "sgd"), (0.4, 0.5, "same"), (0.5, 0.5, "sgd")])
    def test_the_better_one_is_chosen(self, sgd, same, best, monkeypatch):
        script = iter([sgd, same])
        monkeypatch.setattr(plan, "evaluate", lambda *_, **__: {"nDCG@5": next(script)})
        found = try_out()
        assert found.value == best
        assert numbers(found)[1:] == (100 * sgd, 100 * same)


class TestRowsOfATrial:
    def test_only_those_that_may_be_learned_are(self):
        # Any of the others would make the loss NaN.
        learned = np.arange(0, N, 2)
        spoiled = ROWS.copy()
        spoiled.data[np.repeat(np.arange(N) % 2 == 1, np.diff(spoiled.indptr))] = np.nan
        found = try_out(rows=spoiled, learned=learned)
        assert timeless(found) == timeless(try_out(learned=learned))
        assert numbers(found)[0] == len(learned)

    @pytest.mark.parametrize(("most", "used"), [(70, 70), (10 * N, N)])
    def test_no_more_than_needed(self, most, used):
        assert numbers(try_out(size=SHORT._replace(most_rows=most)))[0] == used

    def test_the_given_rows_stay_as_they_are(self):
        before = [matrix.copy() for matrix in (ROWS, Y, *NEW)]
        try_out()
        for matrix, copied in zip((ROWS, Y, *NEW), before, strict=True):
            np.testing.assert_array_equal(matrix.toarray(), copied.toarray())

    def test_more_rows_to_judge_by_than_needed(self):
        assert timeless(try_out(size=SHORT._replace(most_ranked=30))) == timeless(
            try_out(evaluated=(NEW[0][:30], NEW[1][:30]))
        )

    def test_rows_scaled_when_they_are_taken(self, tmp_path):
        scaling = Scaling("sqrt").fit(MADE.train.X)

        class Later:
            """Like rows in a file, which are scaled block by block."""

            shape = MADE.train.X.shape

            def __getitem__(self, which: Any) -> sp.csr_matrix:
                return scaling.transform(MADE.train.X[which])

        assert timeless(try_out(rows=Later())) == timeless(try_out())


class TestNetworksOfATrial:
    @pytest.mark.parametrize(
        "given",
        [
            {"settings": RunSettings(NetworkSettings(head="fc", hidden=(24,)))},
            {"settings": RunSettings(NetworkSettings(head="hrr", dim=32, hidden=(24, 16), loss="cosine"))},
            {"settings": RunSettings(NetworkSettings(dim=32, slots=40, dropout=0.9, loss="softmax"))},
            {"evaluated": (NEW[0][:1], NEW[1][:1])},
            {"Y": sp.csr_matrix(Y[:, :3]), "evaluated": (NEW[0], sp.csr_matrix(NEW[1][:, :3]))},
        ],
        ids=["fc", "hrr", "slots", "a single row to judge by", "fewer labels than are ranked"],
    )
    def test_every_kind_can_be_tried(self, given):
        assert try_out(**given).value in ("sgd", "same")

    def test_they_are_small_and_of_the_same_kind(self, trainings):
        large = NetworkSettings(head="chrr", dim=5000, hidden=(4096, 6), loss="cosine", slots=9000, seed=4)
        try_out(RunSettings(large), SHORT._replace(width=10, dim=16))
        small = NetworkSettings(head="chrr", dim=16, hidden=(10, 6), loss="cosine", dropout=0.0, seed=4)
        assert [network for _, _, network in trainings] == [small, small]
        assert [(n, training.first_layer) for n, training, _ in trainings] == [(200, "sgd"), (200, "same")]


# The defaults need no option, for few documents, many and very many: they decide, finish, and learn something.

#: Documents, features, labels, and how many times as good as the most frequent labels the ranking must be.
SIZES = [
    pytest.param(200, 500, 20, 1.2, id="few"),
    pytest.param(15_000, 5000, 1000, 2.0, id="many", marks=pytest.mark.slow),
    pytest.param(500_000, 20_000, 5000, 2.0, id="very many", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("documents", "features", "labels", "times"), SIZES)
def test_defaults_are_better_than_the_most_frequent_labels(documents, features, labels, times):
    dataset = make_multilabel(documents, features, labels, seed=0, n_test=500, labels_per_row=3)
    model = fit(dataset.train, RunSettings.from_preset("default", {}))
    decided = {each["setting"]: each for each in model.training["decided"]}
    assert all(each["why"] for each in decided.values())
    assert decided["first_layer"]["tried"] == (1000 < documents <= VERY_MANY)
    assert model.training["documents"] == documents  # it has learned from all of them
    assert len(model.history) == decided["epochs"]["value"]
    frequent = np.argsort(-np.asarray(dataset.train.Y.sum(axis=0)).ravel(), kind="stable")[:5]
    rankings = model.top_k(dataset.test.X, 5)[0], np.tile(frequent, (500, 1))
    ours, theirs = (evaluate(dataset.test.Y, ids, k=5, metrics=("nDCG",))["nDCG@5"] for ids in rankings)
    assert ours > times * theirs


@pytest.mark.parametrize("documents", [1, 2, 19, 20, 21, 40])
def test_a_handful_of_documents(documents):
    dataset = make_multilabel(documents, 30, 5, seed=0)
    model = fit(dataset.train, RunSettings.from_preset("default", {"hidden": (16,)}))
    assert np.isfinite(model.top_k(dataset.train.X, 5)[1]).all()
    assert 0 < model.calibration[0] < np.inf


def test_no_word_at_all():
    split = Split(None, as_labels(sp.csr_matrix(np.ones((3, 1), dtype=np.float32)), "y"), ["", " ", ""])
    with pytest.raises(DataError, match="found no term in at least min_df=1 of the 3 texts"):
        fit(split, RunSettings.from_preset("default", {}))
