"""`circlet train`: its options, and the folder that it writes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from circlet.scoring.heads import HEADS

URI = "http://example.org/"


def test_a_trained_folder_is_complete_without_leftovers(model):
    assert {path.name for path in model.iterdir()} == {
        *("MODEL_CARD.md", "config.json", "weights.safetensors", "history.json", "labels.txt"),
        *("vectorizer.json", "vectorizer.safetensors", "remembered.safetensors"),
    }
    assert (model / "labels.txt").read_text() == "animal\nfood\nvehicle\nweather\n"


@pytest.mark.parametrize("head", HEADS)
def test_every_head_trains_by_name(as_json, head, data, small, tmp_path):
    options = [*small, "--epochs", "12", "--head", head]
    assert as_json("train", data, "--model", tmp_path / "m", *options)["network"]["head"] == head
    assert as_json("evaluate", tmp_path / "m", data)["P@1"] > 0.7


def test_weights_can_be_stored_in_fewer_bits(as_json, works, data, small, tmp_path):
    options = [*small, "--epochs", "2", "--store", "int8"]
    assert as_json("train", data, "--model", tmp_path / "m", *options)["store"] == "int8"
    assert load_file(tmp_path / "m" / "weights.safetensors")["members.0.output.weight"].dtype == torch.int8
    works("evaluate", tmp_path / "m", data)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ([], r"kept the last epoch \(3\)\. Scores on held-out rows, before these were trained on: nDCG@5 [\d.]+"),
        (["--no-join", "--validation", "40"], r"kept epoch [123], the best on held-out rows: nDCG@5 [\d.]+"),
    ],
)
def test_says_which_epoch_it_kept_and_what_is_enough(circlet, data, small, tmp_path, options, kept):
    trained = circlet("train", data, "--model", tmp_path / "m", *small, "--epochs", "3", *options)
    assert re.search(f"^{kept}$", trained.stderr, re.MULTILINE), trained.stderr
    assert re.search(r"^threshold 0\.\d{3}, for the best F1 on held-out rows$", trained.stderr, re.M)
    wanted = [*options, "--for", "precision=0.9", "--overwrite"]
    trained = circlet("train", data, "--model", tmp_path / "m", *small, "--epochs", "3", *wanted)
    assert ", for precision=0.9 on held-out rows\n" in trained.stderr


def test_several_members(as_json, predict, works, data, small, tmp_path):
    options = ["train", data, *small, "--epochs", "8", "--members", "2"]
    trained = works(*options, "--model", tmp_path / "m", "--json")
    stages = re.findall(r"^member (\d)/2, (calibration run|calibrated|epoch)", trained.stderr, re.MULTILINE)
    each = ("calibration run", "calibrated", *["epoch"] * 8)
    assert stages == [(number, stage) for number in "12" for stage in each]
    summary = json.loads(trained.stdout)
    assert summary["members"] == 2
    assert summary["parameters"]["head"] == 2 * (32 * 128 + 128)
    assert [record["member"] for record in summary["history"]] == [1] * 8 + [2] * 8
    assert as_json("evaluate", tmp_path / "m", data)["P@1"] > 0.9
    smaller = as_json("compress", tmp_path / "m", "--store", "int8")["output"]
    for folder in (tmp_path / "m", smaller):
        assert predict(folder, "the fox\n", "-k", "2")[0]["labels"][0] == "animal"
    described = as_json("info", tmp_path / "m")
    assert (described["members"], described["epochs"]) == (2, 16)
    assert described["parameters"] == summary["parameters"]
    shown = " ".join(works("info", tmp_path / "m").stdout.split())
    assert "networks 2" in shown
    assert "epochs 16 of all networks together" in shown


class TestDecided:
    def test_no_option_is_needed(self, as_json, works, data, tmp_path):
        trained = works("train", data, "--model", tmp_path / "m", "--json")
        _, line, *_ = trained.stderr.splitlines()
        assert line.startswith("decided from the data: validation 60, scaling none, char-ngrams 3,5, ")
        decided = {each["setting"]: each for each in json.loads(trained.stdout)["training"]["decided"]}
        assert decided["char_ngrams"]["value"] == [3, 5]
        assert as_json("evaluate", tmp_path / "m", data)["P@1"] > 0.9
        shown = " ".join(works("info", tmp_path / "m").stdout.split())
        assert "decided, char_ngrams 3,5: few texts show few of all words, but many of their parts" in shown

    def test_what_is_given_is_not_decided(self, as_json, data, tmp_path, small):
        options = [*small, "--epochs", "2", "--char-ngrams", "none", "--no-join", "--validation", "20"]
        summary = as_json("train", data, "--model", tmp_path / "m", *options)
        decided = {each["setting"] for each in summary["training"]["decided"]}
        assert decided == {"scaling", "min_df", "max_features"}
        assert json.loads((tmp_path / "m" / "vectorizer.json").read_text())["parameters"]["char_ngrams"] is None
        assert (summary["training"]["documents"], summary["training"]["held_out"]) == (180, 20)
        assert all("nDCG@5" in record for record in summary["history"])


@pytest.mark.parametrize("n", [19, 20])
def test_too_little(works, topics, write_jsonl, small, tmp_path, n):
    """19 documents, and a single label."""
    path = write_jsonl(tmp_path / "a.jsonl", [{**each, "labels": ["same"]} for each in topics(n)])
    said = works("train", path, "--model", tmp_path / "m", *small, "--epochs", "1").stderr
    assert "found only one label, which every document will get; wanted two or more" in said
    assert ("found 19 documents, too few to hold any out, " in said) == ("wanted at least 20" in said) == (n == 19)


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ("--head crr", ["`head`", "chrr-half", "'crr'"]),
            ("--head fc --loss cosine", ["fc", "bce"]),
            ("--hidden a", ["--hidden", "'a'"]),
            ("--lr -1", ["`lr`", "above 0"]),
            ("--device tpu9", ["`device`", "tpu9"]),
            ("--preset slow", ["`preset`", "paper"]),
            ("--resume", ["no interrupted run"]),
            ("--codebook holographic", ["found codebook holographic for head chrr"]),
            ("--validation -0.5", ["`validation`", "-0.5"]),
            ("--store int2", ["`store`: found 'int2'; wanted one of float32, bf16, int8, int4"]),
            ("--continue", ["--continue: {folder} holds no finished model; train without --continue"]),
        ],
    )
    def test_training(self, refused, arguments, words, data, tmp_path):
        folder = tmp_path / "m"
        line = refused("train", data, "--model", folder, *arguments.split())
        assert all(word.format(folder=folder) in line for word in words)
        assert not folder.exists()

    @pytest.mark.parametrize(
        ("option", "parts"),
        [
            ("--head chrr-half --hidden 7", ["chrr-half", "7"]),
            *(
                (f"--{option}", ["circlet: a network of ", "999,999,999", "does not fit into memory"])
                for option in ("dim " + "9" * 15, "hidden " + "9" * 15, "hidden 8," + "9" * 30)
            ),
        ],
        ids=["no half", "dim", "hidden", "second hidden"],
    )
    def test_what_only_the_data_shows(self, circlet, data, small, tmp_path, option, parts):
        finished = circlet("train", data, "--model", tmp_path / "m", *small, *option.split())
        assert finished.returncode == 2
        _, _, line = finished.stderr.splitlines()  # the others say what was read, and decided
        assert line.startswith("circlet: ")
        assert all(part in line for part in parts)
        assert not (tmp_path / "m").exists()

    @pytest.mark.parametrize("lines", ["text,labels\na fox,\na van,\n", "2 3 4\n 0:1\n 2:1\n"])
    def test_data_without_a_label(self, refused, lines, small, tmp_path):
        (tmp_path / "bare.csv").write_text(lines)
        line = refused("train", tmp_path / "bare.csv", "--model", tmp_path / "m", *small)
        assert "bare.csv: found no label in any of the 2 documents; wanted some to learn from" in line
        assert not (tmp_path / "m").exists()


@pytest.fixture(scope="module")
def named_model(works, of_uris, small, tmp_path_factory):
    (data, names), folder = of_uris, tmp_path_factory.mktemp("models") / "named"
    finished = works("train", data, "--model", folder, "--names", names, *small)
    assert "(1 labels are not in it and keep their URIs)" in finished.stderr
    return folder


class TestNames:
    """Labels that are URIs, and a vocabulary with their names."""

    @pytest.mark.parametrize("mark", [",", "\t"])
    def test_predictions_have_both(self, predict, works, named_model, tmp_path, mark):
        (printed,) = predict(named_model, "the fox and the wolf\n", "-k", "1")
        assert printed["labels"] == ["the animal"]
        assert printed["uris"] == [f"{URI}animal"]
        path = tmp_path / ("a.csv" if mark == "," else "a.tsv")
        works("predict", named_model, "-", "-k", "1", "--output", path, stdin="the fox and the wolf\n")
        first, second = path.read_text(encoding="utf-8").splitlines()
        assert first.split(mark) == ["id", "labels", "uris", "scores"]
        assert f"{URI}animal" in second

    def test_data_may_have_uris_or_names(self, as_json, named_model, of_uris, write_jsonl, tmp_path):
        table = tmp_path / "labels.csv"
        by_uri = as_json("evaluate", named_model, of_uris[0], "--per-label", table)
        assert by_uri["unknown_labels"] == 0
        assert by_uri["P@1"] > 0.9
        assert f"the animal,{URI}animal," in table.read_text(encoding="utf-8")
        rows = [json.loads(line) for line in of_uris[0].read_text(encoding="utf-8").splitlines()]
        for row in rows:  # weather has no name
            row["labels"] = [
                label if "weather" in label else label.replace(URI, "the ") for label in row["labels"]
            ]
        by_name = as_json("evaluate", named_model, write_jsonl(tmp_path / "a.jsonl", rows))
        assert by_name["P@1"] == by_uri["P@1"]

    def test_it_is_trained_further(self, works, named_model, write_jsonl, tmp_path):
        copied = Path(shutil.copytree(named_model, tmp_path / "m"))
        rows = [{"text": "a chess game", "labels": [URI + "game", URI + "food"]}] * 4
        path = write_jsonl(tmp_path / "a.jsonl", rows)
        works("train", path, "--model", copied, "--continue", "--epochs", "1", "--device", "cpu")
        uris, labels = ((copied / f"{name}-2.txt").read_text("utf-8").splitlines() for name in ("uris", "labels"))
        assert uris[-1] == f"{URI}game"
        assert labels == ["the animal", "the food", "the vehicle", f"{URI}weather", f"{URI}game"]

    def test_a_smaller_copy_keeps_them(self, as_json, refused, works, named_model, tmp_path):
        works("compress", named_model, "--store", "int8", "--output", tmp_path / "s")
        assert as_json("info", tmp_path / "s")["uris"] is True
        (tmp_path / "s" / "uris.txt").write_text("a\nb\nc\n", encoding="utf-8")
        line = refused("predict", tmp_path / "s", "-", stdin="a fox\n")
        assert "uris.txt: found other content than config.json describes" in line


#: torchrun, on a port that is free.
TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--standalone", "--nproc-per-node", "2", "-m", "circlet"),
)


def lines_of(stderr: str) -> list[str]:
    """What circlet itself says about a mistake, among torchrun's own lines."""
    return [line for line in stderr.splitlines() if line.startswith("circlet: ")]


def assert_same_weights(one: Path, other: Path) -> None:
    """To rounding."""
    first, second = (load_file(folder / "weights.safetensors") for folder in (one, other))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=1e-3, atol=1e-4)


def processes_of(torchrun: subprocess.Popen[str], folder: Path) -> list[int]:
    """Those that torchrun started; the one that writes into the folder is the first."""
    children = Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split()
    first = json.loads((folder / ".lock").read_text())["pid"]
    return sorted(map(int, children), key=lambda pid: pid != first)


@pytest.mark.slow
class TestSeveralProcesses:
    @pytest.fixture
    def options(self, data, small) -> list[str]:
        return ["train", str(data), *small, "--precision", "float32"]

    @pytest.fixture
    def long(self, works, options, tmp_path) -> list[str]:
        """A run that can be ended on its way; `whole` has what it comes to, and `m` is its folder."""
        words = [*options, "--epochs", "60", "--model"]
        works(*words, tmp_path / "whole", "--batch-size", "32")
        return [*words, str(tmp_path / "m")]

    @pytest.fixture
    def started(self, tmp_path) -> Callable[..., tuple[subprocess.Popen[str], list[int]]]:
        """Start torchrun, and wait for the first checkpoint, which is written after the first epoch."""

        def start(*launch: str) -> tuple[subprocess.Popen[str], list[int]]:
            running = subprocess.Popen(launch, stderr=subprocess.PIPE, text=True)
            while not (tmp_path / "m" / "checkpoint.safetensors").exists():
                assert running.poll() is None
                time.sleep(0.01)
            return running, processes_of(running, tmp_path / "m")

        return start

    def test_two_train_what_one_does_with_twice_the_batch(self, circlet, process, options, tmp_path):
        one, two = tmp_path / "one", tmp_path / "two"
        assert circlet(*options, "--batch-size", "32", "--model", one).returncode == 0
        finished = process(*TORCHRUN, *options, "--batch-size", "16", "--model", str(two), "--json")
        assert finished.returncode == 0, finished.stderr
        summary = json.loads(finished.stdout)  # of one process only
        assert (summary["training"]["processes"], summary["training"]["batch_size"]) == (2, 32)
        assert "; 200 documents, 4 labels, 2 processes" in finished.stderr
        assert finished.stderr.count("epoch  25/25") == 1
        assert {path.name for path in two.iterdir()} == {path.name for path in one.iterdir()}
        assert_same_weights(one, two)

    def test_a_batch_that_is_decided_from_the_data_is_shared(self, circlet, process, data, tmp_path):
        words = ["train", str(data), "--hidden", "32", "--epochs", "2", "--dim", "64", "--device", "cpu"]
        words += ["--precision", "float32", "--members", "2", "--model"]
        assert circlet(*words, tmp_path / "one").returncode == 0
        finished = process(*TORCHRUN, *words, str(tmp_path / "two"))
        assert finished.returncode == 0, finished.stderr
        assert_same_weights(tmp_path / "one", tmp_path / "two")

    @pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
    @pytest.mark.parametrize("killed", [0, 1], ids=["the first", "the second"])
    def test_a_killed_process_ends_the_others_and_the_run_goes_on(
        self, works, started, long, options, tmp_path, killed
    ):
        running, processes = started(*TORCHRUN, *long)
        os.kill(processes[killed], signal.SIGKILL)
        _, stderr = running.communicate(timeout=60)
        assert running.returncode != 0
        (line,) = lines_of(stderr)
        assert "--resume" in line
        works("train", options[1], "--model", tmp_path / "m", "--resume", "--device", "cpu")
        assert_same_weights(tmp_path / "whole", tmp_path / "m")

    @pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
    def test_torchrun_can_start_a_killed_run_again(self, started, long, tmp_path):
        running, processes = started(*TORCHRUN[:4], "--max-restarts", "1", *TORCHRUN[4:], *long)
        os.kill(processes[1], signal.SIGKILL)
        _, stderr = running.communicate(timeout=120)
        assert running.returncode == 0, stderr
        assert_same_weights(tmp_path / "whole", tmp_path / "m")

    @pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
    @pytest.mark.parametrize("ended", ["the first", "the second", "torchrun"])
    def test_sigterm_leaves_a_checkpoint_and_the_run_goes_on(self, process, started, long, tmp_path, ended):
        """A cluster ends torchrun like this, which passes it on; somebody may also end a single process."""
        folder = tmp_path / "m"
        running, (first, second) = started(*TORCHRUN, *long)
        os.kill({"torchrun": running.pid, "the first": first, "the second": second}[ended], signal.SIGTERM)
        _, stderr = running.communicate(timeout=60)
        assert running.returncode != 0
        assert not (folder / "config.json").exists()
        assert lines_of(stderr) == []
        assert stderr.count(f"{folder} holds a checkpoint to resume") == 1, stderr
        finished = process(*TORCHRUN, *long, "--resume")
        assert finished.returncode == 0, finished.stderr
        assert_same_weights(tmp_path / "whole", folder)

    def test_two_machines(self, circlet, options, free_port, tmp_path):
        """Each has a folder of its own, and only that of the first one gets the model."""
        assert circlet(*options, "--batch-size", "32", "--model", tmp_path / "one").returncode == 0
        words = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1"]
        words += ["--master-port", str(free_port), "-m", "circlet", *options, "--model", "m"]
        nodes, running = [tmp_path / "node 0", tmp_path / "node 1"], []
        try:
            for rank, node in enumerate(nodes):
                node.mkdir()
                launch = [*TORCHRUN[:3], "--node-rank", str(rank), *words]
                running.append(subprocess.Popen(launch, cwd=node, stderr=subprocess.PIPE, text=True))
            said = [each.communicate(timeout=120)[1] for each in running]
        finally:
            for each in running:
                each.kill()
        assert [each.returncode for each in running] == [0, 0], said
        made = {path.name for path in (nodes[0] / "m").iterdir()}
        assert made == {path.name for path in (tmp_path / "one").iterdir()}
        assert list(nodes[1].iterdir()) == []
        assert_same_weights(tmp_path / "one", nodes[0] / "m")

    @pytest.mark.parametrize(
        ("given", "line"),
        [
            (["--device", "cuda:1"], "found --device cuda:1 for several processes; wanted auto, cpu or cuda"),
            (["--dropout", "2"], "`dropout`: found 2; wanted at least 0 and below 1"),
            (["--resume"], "holds no interrupted run"),
        ],
    )
    def test_mistakes_are_one_line(self, process, options, tmp_path, given, line):
        finished = process(*TORCHRUN, *options, "--model", str(tmp_path / "m"), *given)
        assert finished.returncode != 0
        (found,) = lines_of(finished.stderr)
        assert line in found
        assert not (tmp_path / "m").exists()

    @pytest.mark.skipif(torch.cuda.device_count() > 1, reason="has enough GPUs")
    def test_too_few_gpus(self, process, options, tmp_path):
        finished = process(*TORCHRUN, *options, "--model", str(tmp_path / "m"), "--device", "cuda")
        (line,) = lines_of(finished.stderr)
        assert f"found {torch.cuda.device_count()} GPUs for 2 processes; wanted one each" in line


def test_other_commands_are_one_process(refused, circlet, model):
    together = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    line = refused("info", model, **together, RANK="0")
    assert "found 2 processes of circlet info; wanted one: only train is shared" in line
    silent = circlet("info", model, **together, RANK="1")
    assert (silent.returncode, silent.stdout, silent.stderr) == (2, "", "")
