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
def test_interrupted_and_resumed_is_the_same_model(circlet, works, data, small, tmp_path, interrupt, at):
    options = [data, *small, "--epochs", "3", "--model"]
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    assert circlet("train", *options, whole).returncode == 0
    with interrupt(at) as taken:
        interrupted = circlet("train", *options, parted)
    assert interrupted.returncode == 130, interrupted.stderr
    assert len(taken) == at
    assert f"--model {parted} --resume" in interrupted.stderr
    assert "Traceback" not in interrupted.stderr

    again = circlet("train", *options, parted)
    assert again.returncode == 2
    assert "--resume" in again.stderr  # an interrupted run is not thrown away by accident
    works("train", data, "--model", parted, "--resume")
    assert_same(parted, whole)


# Of 2 members, each with two epochs of 12 steps in its calibration run and two of 13 then: in either of them.
@pytest.mark.parametrize("at", [30, 60])
def test_several_members_interrupted_and_resumed(circlet, works, data, small, tmp_path, interrupt, at):
    options = ["train", data, *small, "--epochs", "2", "--members", "2", "--model"]
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    assert circlet(*options, whole).returncode == 0
    with interrupt(at):
        interrupted = circlet(*options, parted)
    assert interrupted.returncode == 130, interrupted.stderr
    assert f"of member {1 if at <= 50 else 2}; " in interrupted.stderr
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
def test_the_plan_says_how_long_each_stage_took(circlet, data, small, tmp_path, options, stages):
    told = circlet("train", data, "--model", tmp_path / "m", *small, "--epochs", "1", *options, "--json")
    plan = json.loads(told.stdout)["plan"]
    assert [each["stage"] for each in plan] == stages
    assert all(each["seconds"] >= 0 for each in plan)
    assert [each["member"] for each in plan if "member" in each] == (
        [1, 1, 2, 2] if "--members" in options else []
    )
    shown = circlet("train", data, "--model", tmp_path / "shown", *small, "--epochs", "1", *options).stderr
    for each in plan:
        name = f"{each['stage']}, member {each['member']}" if "member" in each else each["stage"]
        assert re.search(rf"^{name} +\d+\.\d s$", shown, re.MULTILINE), shown


@pytest.fixture
def finished(model, tmp_path) -> Path:
    """A copy of the finished model."""
    return Path(shutil.copytree(model, tmp_path / "finished"))


@pytest.fixture
def more(write_jsonl, topics, tmp_path) -> Path:
    """Further documents: some of the old topics, and as many of a new one."""
    words = SPORT.split()
    new = [{"text": f"the {words[i % 8]} and the {words[(i + 3) % 8]}", "labels": ["sport"]} for i in range(60)]
    return write_jsonl(tmp_path / "more.jsonl", [*topics(60), *new])


class TestFinishedModel:
    def test_it_is_not_replaced_by_accident(self, refused, finished, data, small):
        before = contents(finished)
        line = refused("train", data, "--model", finished, *small)
        assert f"{finished} holds a finished model" in line
        assert "--continue" in line
        assert "--overwrite" in line
        assert contents(finished) == before

    def test_overwrite_replaces_it(self, circlet, works, finished, more, small):
        options = [*small, "--epochs", "2", "--dim", "16", "--json"]
        done = works("train", more, "--model", finished, *options, "--overwrite")
        summary = json.loads(done.stdout)
        assert (summary["network"]["dim"], summary["n_labels"], len(summary["history"])) == (16, 5, 2)
        fresh = finished.with_name("fresh")
        circlet("train", more, "--model", fresh, *options)
        assert contents(finished)["weights.safetensors"] == contents(fresh)["weights.safetensors"]
        assert sorted(contents(finished)) == sorted(contents(fresh))

    def test_overwrite_needs_nothing_to_overwrite(self, works, data, small, tmp_path):
        works("train", data, "--model", tmp_path / "m", *small, "--epochs", "1", "--overwrite")

    def test_overwrite_does_not_forget_an_interrupted_run(self, refused, finished, data, small):
        (finished / "checkpoint.safetensors").touch()
        line = refused("train", data, "--model", finished, *small, "--overwrite")
        assert "holds the checkpoint of an interrupted run: continue it with --resume" in line


class TestContinue:
    def test_new_labels_are_learned_and_old_ones_kept(self, circlet, works, model, finished, more, data):
        before = json.loads((finished / "config.json").read_text(encoding="utf-8"))
        done = works("train", more, "--model", finished, "--continue", "--epochs", "15", "--lr", "0.01", "--json")
        assert "120 documents, 5 labels" in done.stderr
        summary = json.loads(done.stdout)
        assert summary["n_labels"] == 5
        assert contents(finished)["labels.txt"].decode() == "animal\nfood\nvehicle\nweather\nsport\n"
        asked = "tennis and hockey\nrain, snow and a storm\nthe fox\n"
        found = circlet("predict", finished, "-", "-k", "1", stdin=asked).stdout.splitlines()
        assert [json.loads(line)["labels"][0] for line in found] == ["sport", "weather", "animal"]
        values = json.loads(circlet("evaluate", finished, data, "--json").stdout)
        assert values["P@1"] > 0.9
        after = json.loads((finished / "config.json").read_text(encoding="utf-8"))
        for name in ("network", "n_features", "scaling", "calibration", "texts"):
            assert after[name] == before[name]
        assert contents(finished).keys() == contents(model).keys()

    def test_five_epochs_at_half_the_rate_unless_told_otherwise(self, circlet, finished, more, topics):
        before = Model.load(finished)
        circlet("train", more, "--model", finished, "--continue")
        after = Model.load(finished)
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
         "patience 2", "members 2"],
    )  # fmt: skip
    def test_what_the_model_is_cannot_change(self, refused, option, finished, more):
        before = contents(finished)
        name = option.split()[0].replace("-", "_")
        line = refused("train", more, "--model", finished, "--continue", *f"--{option}".split())
        assert f"--continue: {name} can't change, only {', '.join(FURTHER)}" in line
        assert contents(finished) == before

    @pytest.mark.parametrize("option", [["--preset", "accurate"], ["--seed", "0"], ["--overwrite"]])
    def test_what_it_keeps_cannot_be_given(self, refused, option, finished, more):
        line = refused("train", more, "--model", finished, "--continue", *option)
        assert "--continue keeps the model's preset and seed" in line

    def test_how_weights_are_stored_stays(self, circlet, finished, more, tmp_path):
        small = tmp_path / "small"
        circlet("compress", finished, "--store", "int8", "--output", small)
        done = circlet("train", more, "--model", small, "--continue", "--epochs", "1", "--json")
        summary = json.loads(done.stdout)
        assert summary["store"] == "int8"
        assert summary["training"]["continued_on"] == [Path(more).stem]
        assert summary["training"]["preset"] == "default"

    @pytest.mark.parametrize("at", [3, 8, 11])  # of 8 steps per epoch: in the first, at its end, in the second
    def test_interrupted_and_resumed_is_the_same_model(self, circlet, works, finished, more, interrupt, at):
        whole = Path(shutil.copytree(finished, finished.with_name("whole")))
        options = ["train", more, "--continue", "--epochs", "2", "--model"]
        assert circlet(*options, whole).returncode == 0
        before = contents(finished)
        with interrupt(at) as taken:
            interrupted = circlet(*options, finished)
        assert interrupted.returncode == 130, interrupted.stderr
        assert len(taken) == at
        # Meanwhile the folder still holds the model of before, which can be used.
        assert {name: contents(finished)[name] for name in before} == before
        assert circlet("predict", finished, "-", stdin="the fox\n").returncode == 0
        works("train", more, "--model", finished, "--resume")
        assert_same(finished, whole)

    def test_all_members_are_trained_further(self, circlet, works, data, more, small, tmp_path, interrupt):
        whole, parted = tmp_path / "whole", tmp_path / "parted"
        circlet("train", data, "--model", whole, *small, "--epochs", "1", "--members", "2")
        shutil.copytree(whole, parted)
        options = ["train", more, "--continue", "--epochs", "1", "--model"]
        done = works(*options, whole, "--json")
        records = json.loads(done.stdout)["history"]
        assert [(each["member"], each["epoch"]) for each in records] == [(1, 1), (2, 1), (1, 2), (2, 2)]
        assert [network.n_labels for network in Model.load(whole).networks] == [5, 5]
        with interrupt(11):  # of 8 steps: in the second member
            assert circlet(*options, parted).returncode == 130
        assert circlet("train", more, "--model", parted, "--resume").returncode == 0
        assert_same(parted, whole)

    def test_there_must_be_a_model(self, refused, data, tmp_path):
        line = refused("train", data, "--model", tmp_path / "m", "--continue")
        assert f"--continue: {tmp_path / 'm'} holds no finished model; train without --continue" in line
        assert not (tmp_path / "m").exists()

    def test_feature_rows_for_a_model_of_texts(self, circlet, finished, tmp_path):
        (tmp_path / "rows.txt").write_text("0 1:0.5\n1 2:1\n0 3:1\n2 1:1\n")
        before = contents(finished)
        done = circlet("train", tmp_path / "rows.txt", "--model", finished, "--continue")
        assert done.returncode == 2
        assert "this model wants texts" in done.stderr.splitlines()[-1]
        assert contents(finished) == before


class TestResume:
    def test_what_is_given_again_must_agree(
        self, circlet, refused, data, small, tmp_path, interrupt, write_jsonl, topics
    ):
        options = ["train", data, "--model", tmp_path / "m", *small, "--epochs", "2"]
        with interrupt(3):
            assert circlet(*options).returncode == 130
        line = refused("train", data, "--model", tmp_path / "m", "--resume", "--epochs", "3")
        assert "--resume: the run was started with epochs 2, not 3" in line
        other = write_jsonl(tmp_path / "other.jsonl", topics(40))
        line = refused("train", other, "--model", tmp_path / "m", "--resume")
        assert f"--resume: the run was started on {data}, not on {other}" in line
        assert circlet(*options, "--resume", "--label-column", "labels", "--seed", "0").returncode == 0


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
            (["--seed", "7"], "seed 0, not 7"),
            (["--preset", "paper"], "preset default, not paper"),
            (["--store", "int8"], "store None, not int8"),
            (["--text-column", "body"], "text-column text, not body"),
            (["--label-column", "labels"], "label-column tags, not labels"),
            (["--label-separator", "|"], "label-separator None, not |"),
            (["--split", "1"], "split 0, not 1"),
        ],
    )
    def test_what_it_was_started_with_stays(self, refused, data, tmp_path, described, option, named):
        described()
        line = refused("train", data, "--model", tmp_path, "--resume", *option)
        assert f"the run was started with {named}; leave the option out" in line

    def test_what_a_run_was_not_started_for(self, refused, data, tmp_path, described):
        described()
        line = refused("train", data, "--model", tmp_path, "--resume", "--continue")
        assert "--resume: the run was started without --continue; leave the option out" in line
        line = refused("train", data, "--model", tmp_path, "--resume", "--overwrite")
        assert "found --resume and --overwrite; wanted one" in line

    @pytest.fixture
    def unreadable(self, refused, data, tmp_path) -> Callable[[], str]:
        """Check that the description is refused, and give the line."""

        def check() -> str:
            line = refused("train", data, "--model", tmp_path, "--resume")
            assert "run.json: found no readable description of the run" in line
            return line

        return check

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"data": "a"}', "null"])
    def test_unreadable(self, unreadable, content, tmp_path):
        (tmp_path / "run.json").write_text(content)
        unreadable()

    @pytest.mark.parametrize(
        "wrong",
        [
            *({"data": 3}, {"data": {"a": 1}}, {"preset": "strange"}, {"preset": 0}, {"seed": "0"}, {"seed": -1}),
            *({"store": "int9"}, {"keep_index": 2}, {"further": None}, {"processes": 0}),
            *({"feedback": {"file": "log.jsonl", "records": "3"}}, {"feedback": {"file": "log.jsonl"}}),
            *(
                {"given": []},
                {"given": {"wings": 2}},
                {"given": {"hidden": 3}},
                {"given": {"char_ngrams": [5, 3]}},
            ),
            *({"given": {"batch_size": {}}}, {"read": {"text_column": "text", "more": 1}}, {"read": "text"}),
            *({"read": {"names": True}}, {"read": {"split": "0"}}),
        ],
        ids=str,
    )
    def test_wrong_values(self, unreadable, described, wrong):
        described(**wrong)
        unreadable()

    @pytest.mark.parametrize("missing", ["generation", *(each.name for each in fields(Run))])
    def test_half_of_a_description(self, unreadable, described, missing):
        described(**{missing: ...})
        assert missing in unreadable()
