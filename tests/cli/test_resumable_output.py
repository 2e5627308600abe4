"""A run of `circlet predict` that is killed at any point, and goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.data.layouts import write_parquet

from circlet.cli.resumable_output import PartialOutput, is_resumable, opened
from circlet.data.records import Record, write_records
from circlet.errors import DataError, ParameterError
from circlet.identity import Identity
from circlet.runtime.answers import Answer, Suggestion

RUN = {"model": "m", "options": {"k": 5}}


def made(path, run=RUN, resume=False):
    return opened(path, path.suffix.removeprefix("."), Identity(run), with_uris=False, resume=resume)


def batch(first):
    labels = [Suggestion("a", 0.5), Suggestion("b, c", 0.25)]
    return [Answer(first + n, labels) for n in range(3)]


class Killed(BaseException):
    pass


def run(path, of=RUN, *, resume=False, die_after=None, junk=b""):
    """Write four batches; die after some of them, maybe in the middle of writing."""
    with made(path, of, resume) as partial:
        for number in range(partial.documents // 3, 4):
            if number == die_after:
                with partial.path.open("ab") as out:
                    out.write(junk)
                raise Killed
            partial.write(batch(3 * number))


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv"])
@pytest.mark.parametrize("junk", [b"", b'{"id": 7, "la'])
@pytest.mark.parametrize("die_after", [0, 1, 3])
def test_the_same_bytes(tmp_path, name, junk, die_after):
    whole, path = tmp_path / f"whole{name[1:]}", tmp_path / name
    run(whole)
    with pytest.raises(Killed):
        run(path, die_after=die_after, junk=junk)
    assert not path.exists()
    run(path, resume=True)
    assert path.read_bytes() == whole.read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([name, whole.name])


def test_without_resume_it_starts_again_and_says_so(tmp_path, capsys):
    with pytest.raises(Killed):
        run(tmp_path / "a.jsonl", die_after=2)
    assert capsys.readouterr().err == ""
    run(tmp_path / "a.jsonl")
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 12
    assert "a.jsonl.part: starting again; --resume would have continued it" in capsys.readouterr().err


def test_an_interrupted_run_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "Killed", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a.jsonl", die_after=1)
    said = capsys.readouterr().err
    assert "3 documents are tagged in" in said
    assert "a.jsonl.part; the same command with --resume continues" in said


def test_an_error_leaves_nothing(tmp_path):
    def fail():
        with made(tmp_path / "a.csv") as partial:
            partial.write(batch(0))
            raise DataError("a broken line")

    with pytest.raises(DataError, match="a broken line"):
        fail()
    assert list(tmp_path.iterdir()) == []
    # Nothing to write is no error.
    with made(tmp_path / "a.csv"):
        pass
    assert (tmp_path / "a.csv").read_text() == "id,labels,scores\n"


def test_another_run(tmp_path):
    with pytest.raises(Killed):
        run(tmp_path / "a.jsonl", die_after=2)
    with pytest.raises(ParameterError, match="was made with other options; repeat the same command"):
        run(tmp_path / "a.jsonl", {**RUN, "options": {"k": 6}}, resume=True)
    (tmp_path / "a.jsonl.part.json").write_text("[]")
    with pytest.raises(DataError, match="found no state of"):
        run(tmp_path / "a.jsonl", resume=True)


def test_what_can_be_resumed(tmp_path):
    assert is_resumable(tmp_path / "a.csv", "csv", ["x.jsonl"])
    for name, kind, source in [("a.csv", "csv", "-"), ("a.csv.gz", "csv", "x"), ("a.parquet", "parquet", "x")]:
        assert not is_resumable(tmp_path / name, kind, [source])


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_the_command_goes_on(circlet, works, model, topics, write_jsonl, tmp_path, monkeypatch, batches):
    documents = write_jsonl(tmp_path / "d.jsonl", topics(2500))
    whole, output = tmp_path / "whole.csv", tmp_path / "a.csv"
    works("predict", model, documents, "--output", whole)
    write, left = PartialOutput.write, [batches]

    def dying(self, found):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        write(self, found)

    with monkeypatch.context() as patch:
        patch.setattr(PartialOutput, "write", dying)
        assert circlet("predict", model, documents, "--output", output).returncode == 130
    assert not output.exists()
    if batches:
        assert json.loads((tmp_path / "a.csv.part.json").read_text())["documents"] == 1024 * batches
    works("predict", model, documents, "--output", output, "--resume")
    assert output.read_bytes() == whole.read_bytes()


@pytest.mark.skipif(os.name == "nt", reason="making links needs rights on Windows")
def test_a_link_to_itself(refused, model, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    line = refused("predict", model, tmp_path / "loop", "--output", tmp_path / "a.jsonl")
    assert "found no file, folder or dataset called" in line
    assert not (tmp_path / "a.jsonl.part").exists()


def test_resume_needs_files(refused, model):
    assert "--resume: wanted documents of files" in refused("predict", model, "-", "--resume", stdin="a\n")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs signals of POSIX systems")
def test_killed_at_arbitrary_points(circlet, model, topics, write_jsonl, tmp_path):
    """By a signal that no process can handle, again and again."""
    documents = write_jsonl(tmp_path / "d.jsonl", topics(40_000))
    whole, output = tmp_path / "whole.jsonl", tmp_path / "a.jsonl"
    assert circlet("predict", model, documents, "--output", whole).returncode == 0
    command = [sys.executable, "-m", "circlet", "predict", model, documents, "--output", output, "--resume"]
    for wanted in (1024, 9 * 1024, 21 * 1024):
        started = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while started.poll() is None:
            state = tmp_path / "a.jsonl.part.json"
            if state.is_file() and json.loads(state.read_text())["documents"] >= wanted:
                started.kill()
                break
        started.wait()
    assert subprocess.run(command, check=False).returncode == 0
    assert output.read_bytes() == whole.read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_memory_does_not_grow_with_the_documents(model, topics, tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    code = (
        "import sys; from circlet.cli import main\ntry: main()\nfinally:\n"
        " print(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1], file=sys.stderr)"
    )
    peaks = []
    for copies in (1, 20):
        rows = [Record(n, row["text"] + " and so on" * 20, ()) for n, row in enumerate(topics(3000) * copies, 1)]
        path = tmp_path / f"{copies}.{ending}"
        write_parquet(path, rows) if ending == "parquet" else write_records(path, rows, ending)
        words = ["predict", str(model), str(path), "--output", str(tmp_path / "out.jsonl"), "--threads", "1"]
        finished = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
        peaks.append(int(finished.stderr.split()[-1]))
    assert peaks[1] < peaks[0] + 20_000  # KiB; the larger file has 14 MB of text
