"""A run of `circlet train` from its start to a finished model: interrupted, resumed, replaced, continued."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import pytest

from circlet.cli.progress import TrainingBar
from circlet.model import Model
from circlet.model.session import FURTHER, Run

SPORT = "football tennis chess rowing fencing judo sailing hockey"


@pytest.fixture
def interrupt(monkeypatch) -> Callable[[int], AbstractContextManager[list]]:
    """Press Ctrl-C in a step of training, counted from 1; gives the steps that were taken."""

    @contextmanager
    def at_step(at: int) -> Iterator[list]:
        step, taken = TrainingBar.step, []

        def interrupting(bar, steps):
            taken.append(steps)
            if len(taken) == at:
                signal.raise_signal(signal.SIGINT)
            step(bar, steps)

        with monkeypatch.context() as patch:
            patch.setattr(TrainingBar, "step", interrupting)
            yield taken

    return at_step


@pytest.fixture
def interrupted(circlet, interrupt) -> Callable[..., str]:
    """Run a command that is interrupted in a step; gives what it says."""

    def run(at: int, *words: object) -> str:
        with interrupt(at) as taken:
            finished = circlet(*words)
        assert finished.returncode == 130, finished.stderr
        assert len(taken) == at
        assert "Traceback" not in finished.stderr
        return finished.stderr

    return run


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder by their names without the number of the model."""
    return {re.sub(r"-[0-9]+(?=\.)", "", path.name): path.read_bytes() for path in folder.iterdir()}


def assert_same(one: Path, other: Path) -> None:
    """Both hold the same model; only its history says how long it took."""
    found, expected = contents(one), contents(other)
    assert sorted(found) == sorted(expected)
    for name in found.keys() - {"config.json", "history.json"}:
        assert found[name] == expected[name]
    configs = [json.loads(each["config.json"]) for each in (found, expected)]
    for config in configs:
        del config["sha256"], config["files"]["history.json"]
    assert configs[0] == configs[1]


@pytest.mark.parametrize("at", [5, 12, 13])  # of 12 steps per epoch: in the first, at its end, in the second
def test_interrupted_and_resumed_is_the_same_model(circlet, works, data, small, tmp_path, interrupted, at):
    options = ["train", data, *small, "--epochs", "3", "--model"]
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    works(*options, whole)
    assert f"--model {parted} --resume" in interrupted(at, *options, parted)
    again = circlet(*options, parted)
    assert again.returncode == 2
    assert "--resume" in again.stderr  # an interrupted run is not thrown away by accident
    works("train", data, "--model", parted, "--resume")
    assert_same(parted, whole)


# Of 2 members, each with two epochs of 12 steps in its calibration run and two of 13 then: in either of them.
@pytest.mark.parametrize(("at", "member"), [(30, 1), (60, 2)])
def test_several_members_interrupted_and_resumed(works, data, small, tmp_path, interrupted, at, member):
    options = ["train", data, *small, "--epochs", "2", "--members", "2", "--model"]
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    works(*options, whole)
    assert f"of member {member}; " in interrupted(at, *options, parted)
    works("train", data, "--model", parted, "--resume")
    assert_same(parted, whole)


STAGES = ["read", "decide", "features", "calibration run", "train", "save"]


@pytest.mark.parametrize(
    ("options", "stages"),
    [
        ([], STAGES),
        (["--validation", "0"], ["read", "decide", "features", "train", "calibrate", "save"]),
        (["--members", "2", "--keep-index"], [*STAGES[:3], *STAGES[3:5] * 2, "index", "save"]),
    ],
    ids=str,
)
def test_the_plan_says_how_long_each_stage_took(circlet, as_json, data, small, tmp_path, options, stages):
    words = ["train", data, *small, "--epochs", "1", *options, "--model"]
    plan = as_json(*words, tmp_path / "m")["plan"]
    assert [each["stage"] for each in plan] == stages
    assert all(each["seconds"] >= 0 for each in plan)
    members = [1, 1, 2, 2] if "--members" in options else []
    assert [each["member"] for each in plan if "member" in each] == members
    shown = circlet(*words, tmp_path / "shown").stderr
    for each in plan:
        name = f"{each['stage']}, member {each['member']}" if "member" in each else each["stage"]
        assert re.search(rf"^{name} +\d+\.\d s$", shown, re.MULTILINE), shown


@pytest.fixture
def more(write_jsonl, topics, tmp_path) -> Path:
    """Further documents: some of the old topics, and as many of a new one."""
    words = SPORT.split()
    new = [{"text": f"the {words[i % 8]} and the {words[(i + 3) % 8]}", "labels": ["sport"]} for i in range(60)]
    return write_jsonl(tmp_path / "more.jsonl", [*topics(60), *new])


class TestFinishedModel:
    def test_it_is_not_replaced_by_accident(self, refused, copied, data, small):
        before = contents(copied)
        line = refused("train", data, "--model", copied, *small)
        assert f"{copied} holds a finished model" in line
        assert "--continue" in line
        assert "--overwrite" in line
        assert contents(copied) == before

    def test_overwrite_replaces_it_if_it_is_there(self, as_json, works, copied, more, small):
        options = ["train", more, *small, "--epochs", "2", "--dim", "16", "--overwrite", "--model"]
        summary = as_json(*options, copied)
        assert (summary["network"]["dim"], summary["n_labels"], len(summary["history"])) == (16, 5, 2)
        fresh = copied.with_name("fresh")
        works(*options, fresh)
        assert contents(copied)["weights.safetensors"] == contents(fresh)["weights.safetensors"]
        assert sorted(contents(copied)) == sorted(contents(fresh))

    def test_overwrite_does_not_forget_an_interrupted_run(self, refused, copied, data, small):
        (copied / "checkpoint.safetensors").touch()
        line = refused("train", data, "--model", copied, *small, "--overwrite")
        assert "holds the checkpoint of an interrupted run: continue it with --resume" in line


class TestContinue:
    def test_new_labels_are_learned_and_old_ones_kept(self, as_json, predict, works, model, copied, more, data):
        before = json.loads((copied / "config.json").read_text(encoding="utf-8"))
        done = works("train", more, "--model", copied, "--continue", "--epochs", "15", "--lr", "0.01", "--json")
        assert "120 documents, 5 labels" in done.stderr
        summary = json.loads(done.stdout)
        assert summary["n_labels"] == 5
        assert contents(copied)["labels.txt"].decode() == "animal\nfood\nvehicle\nweather\nsport\n"
        found = predict(copied, "tennis and hockey\nrain, snow and a storm\nthe fox\n", "-k", "1")
        assert [each["labels"][0] for each in found] == ["sport", "weather", "animal"]
        assert as_json("evaluate", copied, data)["P@1"] > 0.9
        after = json.loads((copied / "config.json").read_text(encoding="utf-8"))
        for name in ("network", "n_features", "scaling", "calibration", "texts"):
            assert after[name] == before[name]
        assert contents(copied).keys() == contents(model).keys()

    def test_five_epochs_at_half_the_rate_unless_told_otherwise(self, circlet, copied, more, topics):
        before = Model.load(copied)
        circlet("train", more, "--model", copied, "--continue")
        after = Model.load(copied)
        assert after.history[:25] == before.history
        assert [record["epoch"] for record in after.history[25:]] == [26, 27, 28, 29, 30]
        assert max(record["lr"] for record in after.history[25:]) <= 0.005
        assert after.documents_seen == before.documents_seen + 120
        names = ("animal", "food", "vehicle", "weather")
        added = [sum(name in row["labels"] for row in topics(60)) for name in names]
        np.testing.assert_array_equal(after.label_counts, [*(before.label_counts + added), 60])

    @pytest.mark.parametrize(
        "option",
        ["dim 8", "head fc", "hidden 8", "dropout 0.1", "scaling l2", "min-df 2", "validation 0.2", "metric P@1",
         "patience 2", "members 2", "preset accurate", "seed 0", "overwrite"],
    )  # fmt: skip
    def test_what_the_model_is_cannot_change(self, refused, option, copied, more):
        before = contents(copied)
        name = option.split()[0].replace("-", "_")
        line = refused("train", more, "--model", copied, "--continue", *f"--{option}".split())
        if name in ("preset", "seed", "overwrite"):
            assert "--continue keeps the model's preset and seed" in line
        else:
            assert f"--continue: {name} can't change, only {', '.join(FURTHER)}" in line
        assert contents(copied) == before

    def test_how_weights_are_stored_stays(self, as_json, works, model, more, tmp_path):
        small = tmp_path / "small"
        works("compress", model, "--store", "int8", "--output", small)
        summary = as_json("train", more, "--model", small, "--continue", "--epochs", "1")
        assert summary["store"] == "int8"
        assert summary["training"]["continued_on"] == [Path(more).stem]
        assert summary["training"]["preset"] == "default"

    @pytest.mark.parametrize("at", [3, 8, 11])  # of 8 steps per epoch: in the first, at its end, in the second
    def test_interrupted_and_resumed_is_the_same_model(self, predict, works, copied, more, interrupted, at):
        whole = Path(shutil.copytree(copied, copied.with_name("whole")))
        options = ["train", more, "--continue", "--epochs", "2", "--model"]
        works(*options, whole)
        before = contents(copied)
        interrupted(at, *options, copied)
        # Meanwhile the folder still holds the model of before, which can be used.
        assert {name: contents(copied)[name] for name in before} == before
        assert predict(copied, "the fox\n")
        works("train", more, "--model", copied, "--resume")
        assert_same(copied, whole)

    def test_all_members_are_trained_further(self, as_json, works, data, more, small, tmp_path, interrupted):
        whole, parted = tmp_path / "whole", tmp_path / "parted"
        works("train", data, "--model", whole, *small, "--epochs", "1", "--members", "2")
        shutil.copytree(whole, parted)
        options = ["train", more, "--continue", "--epochs", "1", "--model"]
        records = as_json(*options, whole)["history"]
        assert [(each["member"], each["epoch"]) for each in records] == [(1, 1), (2, 1), (1, 2), (2, 2)]
        assert [network.n_labels for network in Model.load(whole).networks] == [5, 5]
        interrupted(11, *options, parted)  # of 8 steps: in the second member
        works("train", more, "--model", parted, "--resume")
        assert_same(parted, whole)

    def test_feature_rows_for_a_model_of_texts(self, circlet, copied, tmp_path):
        (tmp_path / "rows.txt").write_text("0 1:0.5\n1 2:1\n0 3:1\n2 1:1\n")
        before = contents(copied)
        done = circlet("train", tmp_path / "rows.txt", "--model", copied, "--continue")
        assert done.returncode == 2
        assert "this model wants texts" in done.stderr.splitlines()[-1]
        assert contents(copied) == before


def test_what_is_given_again_must_agree(works, refused, data, small, tmp_path, interrupted, more):
    options = ["train", data, "--model", tmp_path / "m", *small, "--epochs", "2"]
    interrupted(3, *options)
    line = refused("train", data, "--model", tmp_path / "m", "--resume", "--epochs", "3")
    assert "--resume: the run was started with epochs 2, not 3" in line
    line = refused("train", more, "--model", tmp_path / "m", "--resume")
    assert f"--resume: the run was started on {data}, not on {more}" in line
    works(*options, "--resume", "--label-column", "labels", "--seed", "0")


class TestDescription:
    @pytest.fixture
    def described(self, data, tmp_path) -> Callable[..., None]:
        """Write the description of a run into its folder."""

        def write(**changes) -> None:
            read = {"text_column": "text", "label_column": "tags"}
            run = asdict(Run(str(data), {}, read, preset="default", seed=0))
            changed = {"generation": 1, **run, **changes}
            kept = {name: value for name, value in changed.items() if value is not ...}
            (tmp_path / "run.json").write_text(json.dumps(kept))

        return write

    @pytest.mark.parametrize(
        ("option", "named"),
        [
            *(("seed 7", "with seed 0, not 7"), ("preset paper", "with preset default, not paper")),
            *(("store int8", "with store None, not int8"), ("split 1", "with split 0, not 1")),
            ("text-column body", "with text-column text, not body"),
            ("label-column labels", "with label-column tags, not labels"),
            ("label-separator |", "with label-separator None, not |"),
            ("continue", "without --continue"),
        ],
    )
    def test_what_it_was_started_with_stays(self, refused, data, tmp_path, described, option, named):
        described()
        line = refused("train", data, "--model", tmp_path, "--resume", *f"--{option}".split())
        assert f"--resume: the run was started {named}; leave the option out" in line

    def test_overwrite(self, refused, data, tmp_path, described):
        described()
        line = refused("train", data, "--model", tmp_path, "--resume", "--overwrite")
        assert "found --resume and --overwrite; wanted one" in line

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"data": "a"}', "null"])
    def test_unreadable(self, refused, data, tmp_path, content):
        (tmp_path / "run.json").write_text(content)
        line = refused("train", data, "--model", tmp_path, "--resume")
        assert "run.json: found no readable description of the run" in line

    @pytest.mark.parametrize(
        "wrong",
        [
            *({each: ...} for each in ("generation", *(each.name for each in fields(Run)))),
            *({"data": 3}, {"data": {"a": 1}}, {"preset": "strange"}, {"preset": 0}, {"seed": "0"}, {"seed": -1}),
            *({"store": "int9"}, {"keep_index": 2}, {"further": None}, {"processes": 0}),
            *({"feedback": {"file": "log.jsonl", "records": "3"}}, {"feedback": {"file": "log.jsonl"}}),
            *({"given": []}, {"given": {"wings": 2}}, {"given": {"hidden": 3}}),
            {"given": {"char_ngrams": [5, 3]}},
            *({"given": {"batch_size": {}}}, {"read": {"text_column": "text", "more": 1}}, {"read": "text"}),
            *({"read": {"names": True}}, {"read": {"split": "0"}}),
        ],
        ids=str,
    )
    def test_wrong_or_missing_values(self, refused, data, tmp_path, described, wrong):
        described(**wrong)
        line = refused("train", data, "--model", tmp_path, "--resume")
        assert "run.json: found no readable description of the run" in line
        assert all(name in line for name, value in wrong.items() if value is ...)
