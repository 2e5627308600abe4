"""`circlet tune` by running it."""

from __future__ import annotations

import io
import json
import shlex

import pytest
from rich.console import Console

from circlet.cli import tune
from circlet.tuning import Study, Trial
from circlet_paper.synthetic import make_multilabel


@pytest.fixture
def texts(write_jsonl, tmp_path):
    pairs = [("a red fox", ["animal", "red"]), ("the fast car", ["vehicle"]), ("a brown bear", ["animal"])] * 20
    return write_jsonl(tmp_path / "mine.jsonl", [{"text": text, "labels": labels} for text, labels in pairs])


@pytest.fixture
def tuned(works, tmp_path):
    """Search with these words, and train with the command that is found; the report, and that command's words."""

    # The defaults are always trained, and no race may fit into the budget.
    def run(*words):
        options = ["--budget", "1s", "--preset", "fast", "--output", tmp_path / "t", "--json"]
        found = works("tune", *words, *options)
        report = json.loads(found.stdout)
        command = shlex.split(report["command"])
        works(*(tmp_path / "tuned" if word == "tuned" else word for word in command[1:]))
        return report, command

    return run


def test_prints_a_command_that_trains(circlet, tuned, texts, tmp_path):
    report, words = tuned(texts)
    assert report["trials"] >= 1
    assert 0 <= report["score"] <= 100
    assert (tmp_path / "t" / "tuning.png").exists()
    assert (tmp_path / "t" / "train.sh").read_text() == report["command"] + "\n"
    assert words[:2] == ["circlet", "train"]
    assert words[3:7] == ["--model", "tuned", "--preset", "fast"]
    again = circlet("tune", texts, "--budget", "1s", "--preset", "fast", "--output", tmp_path / "t")
    assert f"continuing after {report['trials']} trials" in again.stderr
    assert "Gain" in again.stdout
    assert report["command"] in again.stdout
    assert "--budget 1s is used up" in again.stderr
    assert "a larger budget searches longer" in again.stderr


def test_the_command_reads_the_same_files_columns_and_names(tuned, tmp_path):
    data = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path in data:
        path.write_text("body;tags\n" + "a red fox;http://x/1|red\nthe fast car;http://x/2\n" * 15)
    (tmp_path / "names.tsv").write_text("<http://x/1>\tanimal\n<http://x/2>\tvehicle\n", encoding="utf-8")
    columns = ["--text-column", "body", "--label-column", "tags", "--label-separator", "|"]
    given = [*columns, "--names", str(tmp_path / "names.tsv"), "--seed", "3"]
    _, words = tuned(*data, *given)
    assert words[2:6] == [*map(str, data), "--model", "tuned"]
    assert set(given) <= set(words[6 : 6 + len(given)])


class TestTable:
    """What a terminal shows while a search runs, and what is printed in the end."""

    @pytest.fixture
    def study(self, tmp_path):
        study = Study(make_multilabel(15_000, 20, 5, seed=0), tmp_path / "t.json")
        for number, score in enumerate([50.0, 49.0, 52.0, 48.0, 47.0, 46.0]):
            given = {"epochs": number} if number else {}
            study.trials += [Trial(given, draw, score, 20.0, 3_000_000) for draw in (0, 1)]
        study.trials.append(Trial({"lr": 9.0}, 0, None, 5.0, None, "the loss is not finite"))
        return study

    def test_everything_that_was_tried(self, study):
        rows = {row[0]: row[1:] for row in tune._table(study).rows}
        assert len(rows) == 7
        assert rows["defaults"] == (None, "2/2", "", "3.0 M", "20 s")
        assert rows["epochs 2"] == ("+2.00", "2/2", "★", "3.0 M", "20 s")
        assert rows["epochs 3"][0] == "-2.00"
        assert rows["lr 9.0 (failed: the loss is not finite)"] == (None, "1/2", "", None, "5.0 s")
        assert "50.00 %" in (tune._table(study).note or "")
        # On a terminal the winners and the latest.
        shown = [row[0] for row in tune._table(study, 4).rows]
        assert shown == ["defaults", "epochs 2", "epochs 5", "lr 9.0 (failed: the loss is not finite)"]

    def test_grows_while_the_search_runs(self, study, monkeypatch):
        shown = io.StringIO()
        terminal = Console(file=shown, force_terminal=True, width=100, _environ={"TERM": "xterm"})

        def run(self, budget, watcher):
            watcher(self, "epochs 6")
            return {}

        monkeypatch.setattr(Study, "run", run)
        assert tune._run(study, 600, terminal) == {}
        assert "0:05:55 of 0:10:00 left; training: epochs 6" in shown.getvalue()
        assert "epochs 2" in shown.getvalue()


def test_ctrl_c_says_how_to_go_on(texts, tmp_path, monkeypatch, capsys):
    def interrupted(study, seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(Study, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune.tune([str(texts)], out_folder=tmp_path / "t")
    assert "t/tuning.json has 0 trials; the same command continues" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "soon"], "--budget: found 'soon'; wanted a time such as 90s, 10m or 2h"),
        (["--budget", "0m"], "--budget: found '0m'; wanted a time such as"),
        (["--preset", "paper"], "--preset: found 'paper'; wanted one of fast, default, accurate"),
    ],
)
def test_mistakes(refused, texts, tmp_path, options, message):
    assert message in refused("tune", texts, "--output", tmp_path / "t", *options)
    assert not (tmp_path / "t").exists()


def test_too_few_documents(refused, write_jsonl, tmp_path):
    few = write_jsonl(tmp_path / "few.jsonl", [{"text": "a", "labels": ["b"]}] * 10)
    assert "found 10 documents; wanted at least 40" in refused("tune", few, "--output", tmp_path / "t")
