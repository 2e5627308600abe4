from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circlet
from circlet.bulk import Totals, job, tag_files
from circlet.bulk.engines import ENGINES
from circlet.bulk.job import Job, batches, digest_of, tag_block
from circlet.bulk.plan import PLAN, Options, Plan, cut
from circlet.data.records import Columns, Record
from circlet.errors import DataError, OutputError, ParameterError
from circlet.storage.publish import folder_lock


@pytest.fixture
def here(monkeypatch) -> list[str]:
    """Let blocks be tagged one after the other in this process; gives the parts in the order of their tagging."""
    done: list[str] = []

    def one_after_the_other(function, items, workers):
        for item in items:
            done.append(item.part)
            yield function(item)

    monkeypatch.setitem(ENGINES, "processes", one_after_the_other)
    return done


@pytest.fixture
def docs(tmp_path, write, texts) -> Path:
    """Three files in three formats, one of them empty."""
    folder = tmp_path / "docs"
    folder.mkdir()
    write(folder / "a.jsonl", texts(30))
    write(folder / "b.csv", texts(20), list(range(20)))
    (folder / "c.jsonl").touch()
    return folder


@pytest.fixture
def tag(model, docs, tmp_path) -> Callable[..., Totals]:
    """Tag all files, or those that are named, with these options."""

    def run(*names: str, **options: Any) -> Totals:
        return tag_files(model, [str(docs / name) for name in names] or [str(docs)], tmp_path / "out", **options)

    return run


def parts(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*")}


@pytest.fixture
def tagged(model, tmp_path):
    """Tag the blocks of a file; what becomes of each."""

    def run(path: Path, kind: str = "jsonl", size: int = 100, integer_ids: bool = False, **change):
        options = Options(digest_of(model), 3, None, 0.0, "text", kind, size)
        plan = Plan(options, [cut(path, Columns.unlabeled("text"), size)])
        output = tmp_path / "out"
        output.mkdir(exist_ok=True)
        job = Job(str(model), str(output), replace(options, **change), integer_ids)
        return [tag_block(job, task) for task in plan.tasks()]

    return run


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_labels_are_those_of_the_tagger(tagged, model, write, read, texts, tmp_path, kind):
    outcomes = tagged(write(tmp_path / f"a.{kind}", texts(30), list("abcdefghijklmnopqrstuvwxyzäöüß")), kind)
    assert sum(outcome.documents for outcome in outcomes) == 30
    assert all(outcome.error is None for outcome in outcomes)
    answers = circlet.load(model).answers(texts(30), k=3, threshold=None)
    found = read(tmp_path / "out")
    assert [row["id"] for row in found] == list("abcdefghijklmnopqrstuvwxyzäöüß")
    assert [row["labels"] for row in found] == [[each.label for each in row] for row in answers]
    # In blocks, documents have other neighbors than here, on which the last of six digits may depend.
    scores = [[each.score for each in row] for row in answers]
    np.testing.assert_allclose([row["scores"] for row in found], scores, rtol=1e-5)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {outcome.task.part for outcome in outcomes}


class TestIdsOfParquet:
    def test_all_parts_have_one_type(self, tagged, write, tmp_path):
        parquet = pytest.importorskip("pyarrow.parquet")
        outcomes = tagged(write(tmp_path / "a.jsonl", ["one", "two"], [1, "b"]), "parquet", size=1)
        parts = [parquet.read_table(tmp_path / "out" / outcome.task.part) for outcome in outcomes]
        assert parts[0].schema == parts[1].schema
        assert [part["id"].to_pylist() for part in parts] == [["1"], ["b"]]

    def test_integers_stay(self, tagged, write, read, tmp_path):
        tagged(write(tmp_path / "a.parquet", ["one", "two"], [7, 8]), "parquet", integer_ids=True)
        assert [row["id"] for row in read(tmp_path / "out")] == [7, 8]
        (outcome,) = tagged(write(tmp_path / "a.parquet", ["one", "two"], [7, None]), "parquet", 100, True)
        assert outcome.error.endswith("a.parquet:2: found no id; wanted an integer, as the column has")


class TestFaults:
    def test_bad_rows_are_named_by_file_and_line(self, tagged, write, texts, tmp_path):
        path = write(tmp_path / "a.jsonl", texts(40))
        lines = path.read_bytes().splitlines(keepends=True)
        lines[30], lines[39] = b'{"text": 5}\n', b'{"text": "\xff"}\n'
        path.write_bytes(b"".join(lines))
        outcomes = tagged(path)
        errors = [outcome.error for outcome in outcomes if outcome.error]
        assert errors[0] == f"{path}:31: found 'text' of type int; wanted a string"
        assert f"{path}:40: found byte 0xff" in errors[1]
        assert len(list((tmp_path / "out").iterdir())) == len(outcomes) - len(errors) == len(outcomes) - 2

    @pytest.mark.parametrize(("ids", "named"), [([1.5, 2.0], "'id' of type float"), (None, "'text' of type int")])
    def test_bad_rows_of_parquet(self, tagged, write, tmp_path, ids, named):
        path = write(tmp_path / "a.parquet", ["a", "b"] if ids else [1, 2], ids)
        (outcome,) = tagged(path)
        assert outcome.error.startswith(f"{path}:1: found {named}; wanted a string")

    def test_another_model(self, tagged, write, texts, tmp_path):
        outcomes = tagged(write(tmp_path / "a.jsonl", texts(10)), model="0" * 64)
        assert "found another model than when the run began" in outcomes[0].error
        with pytest.raises(DataError, match="found no readable model"):
            digest_of(tmp_path)


def test_batches_are_bounded():
    """However large a block is, few documents are in memory: their number and their length are bounded."""
    records = [Record(1, text, ()) for text in ["a"] * 10 + ["b" * 60] * 2 + ["c"]]
    assert [len(batch) for batch in batches(iter(records), 4, 50)] == [4, 4, 3, 1, 1]


class TestTagFiles:
    def test_every_document_once_and_in_order(self, here, tag, model, read, texts, tmp_path):
        sizes: list[int] = []
        told: list[tuple[int, int]] = []
        totals = tag(k=2, block_size=200, planned=sizes.append, progress=lambda size, n: told.append((size, n)))
        found = read(tmp_path / "out")
        assert [row["id"] for row in found[:30]] == [f"a.jsonl:{line}" for line in range(1, 31)]
        labels = circlet.load(model).suggest(texts(30), k=2)[0].tolist()
        assert [row["labels"] for row in found] == labels + labels[:20]
        assert (totals.documents, totals.blocks, totals.blocks_before) == (50, len(here), 0)
        assert len(here) == 8
        assert sum(n for _, n in told) == 50
        assert [sum(size for size, _ in told)] == sizes
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [PLAN, *here]

    def test_what_is_there_is_not_tagged_again(self, here, tag, tmp_path):
        again = partial(tag, block_size=200)
        again()
        first, before = list(here), parts(tmp_path / "out")
        lost = first[3]
        (tmp_path / "out" / lost).unlink()
        here.clear()
        totals = again()
        assert here == [lost]
        assert (totals.blocks, totals.blocks_before) == (1, len(first) - 1)
        del before[lost]
        assert parts(tmp_path / "out").items() > before.items()
        here.clear()
        assert again().blocks == 0
        assert here == []

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda docs: os.utime(docs / "b.csv", ns=(0, 0)), r"b\.csv: found another time of change"),
            (lambda docs: (docs / "c.jsonl").write_text("{}"), r"c\.jsonl: found another size"),
            (lambda docs: (docs / "c.jsonl").unlink(), r"found a run with .*c\.jsonl, which is not in the input"),
            (lambda docs: (docs / "d.jsonl").touch(), r"found a run without .*d\.jsonl"),
        ],
    )
    def test_changed_inputs_are_refused(self, here, tag, docs, tmp_path, change, message):
        tag()
        before = parts(tmp_path / "out")
        (tmp_path / "out" / here[0]).unlink()
        change(docs)
        with pytest.raises(DataError, match=message):
            tag()
        del before[here[0]]
        assert parts(tmp_path / "out") == before

    def test_other_blocks_are_done_before_a_fault_is_told(self, here, tag, docs, tmp_path):
        with (docs / "a.jsonl").open("a") as stream:
            stream.write("broken\n")
        with pytest.raises(DataError, match=r"a\.jsonl:31: found 'broken' .*; wanted a JSON object$"):
            tag(block_size=200)
        assert len(parts(tmp_path / "out")) == len(here) - 1

    def test_many_faults_end_the_run(self, here, model, tmp_path):
        (tmp_path / "a.jsonl").write_text('{"body": ""}\n' * 100)
        message = r"a\.jsonl:1: found the keys 'body'; wanted 'text' .* \(and 9 other blocks of 100 have faults\)"
        with pytest.raises(DataError, match=message):
            tag_files(model, [str(tmp_path / "a.jsonl")], tmp_path / "out", block_size=1)
        assert len(here) == 10

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"engine": "steam"}, "`engine`: found 'steam'; wanted one of processes, ray"),
            ({"format": "xml"}, "`format`: found 'xml'; wanted one of parquet, jsonl, csv, tsv"),
            ({"block_size": 0}, "`block_size`: found 0"),
        ],
    )
    def test_wrong_options_write_nothing(self, tag, tmp_path, options, message):
        with pytest.raises(ParameterError, match=message):
            tag(**options)
        assert not (tmp_path / "out").exists()

    def test_one_run_at_a_time(self, here, tag, tmp_path, monkeypatch):
        with folder_lock(tmp_path / "out"), ThreadPoolExecutor() as pool:
            monkeypatch.setattr(job, "folder_lock", partial(folder_lock, patience=0.0))
            with pytest.raises(OutputError, match="is writing into it"):
                pool.submit(tag).result()

    def test_a_file_that_changes_during_the_run(self, here, tag, docs, tmp_path):
        def changed(size: int) -> None:
            os.utime(docs / "a.jsonl", ns=(0, 0))

        with pytest.raises(DataError, match="found another time of change than when its blocks were planned"):
            tag(planned=changed)
        assert len(parts(tmp_path / "out")) == 1  # of the other file

    def test_formats_follow_the_input_that_is_not_empty(self, here, tag, tmp_path):
        tag("c.jsonl", "b.csv")
        assert {Path(part).suffix for part in here} == {".csv"}
        shutil.rmtree(tmp_path / "out")
        assert tag("c.jsonl").documents == 0
        assert [path.name for path in (tmp_path / "out").iterdir()] == [PLAN]


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def children_of(process: int, word: bytes) -> list[int]:
    """The processes that a process has started, with this word in their command."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            command = (path.parent / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue  # it has ended
        if parent == process and word in command:
            found.append(int(path.parent.name))
    return found


def workers_of(process: int) -> list[int]:
    return children_of(process, b"spawn_main")


def busy_workers_of_ray(driver: int) -> list[int]:
    return [worker for raylet in children_of(driver, b"raylet") for worker in children_of(raylet, b"ray::_call")]


@pytest.fixture
def long_run(model, write, texts, tmp_path) -> tuple[list[object], int]:
    """The words of a command with many small blocks, and how many documents they have."""
    path = write(tmp_path / "many.jsonl", texts(12_000))
    return [model, path, "--output", tmp_path / "out", "--workers", 2, "--block-size", "500"], 12_000


def finished(run: subprocess.Popen[str], timeout: float = 120) -> dict[str, Any]:
    """What a run reports in the end."""
    out, err = run.communicate(timeout=timeout)
    assert run.returncode == 0, err
    return json.loads(out)


def check_all(folder: Path, read, n: int) -> None:
    ids = [row["id"] for row in read(folder)]
    assert ids == [f"many.jsonl:{line}" for line in range(1, n + 1)]
    assert not list(folder.glob(".*"))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds workers in /proc")
class TestKilled:
    def test_driver(self, long_run, started, read, tmp_path):
        words, n = long_run
        words += ["--engine", "processes"]
        first = started(*words)
        wait_for(lambda: len(parts(tmp_path / "out")) >= 5)
        workers = workers_of(first.pid)
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        assert workers
        wait_for(lambda: not any(Path(f"/proc/{worker}/environ").exists() for worker in workers))
        before = parts(tmp_path / "out")
        report = finished(started(*words, "--json"))
        assert report["blocks_before"] == len(before)
        assert report["blocks"] > 0
        after = parts(tmp_path / "out")
        assert {name: after[name] for name in before} == before
        assert len(after) == report["blocks"] + report["blocks_before"]
        check_all(tmp_path / "out", read, n)

    def test_worker(self, long_run, started, read, tmp_path):
        words, n = long_run
        run = started(*words, "--engine", "processes", "--json")
        wait_for(lambda: len(parts(tmp_path / "out")) >= 5)
        os.kill(workers_of(run.pid)[0], signal.SIGKILL)
        assert finished(run)["documents"] == n
        check_all(tmp_path / "out", read, n)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds workers in /proc")
class TestRay:
    @pytest.fixture(autouse=True)
    def needs_ray(self):
        pytest.importorskip("ray", reason="needs the extra ray")

    def test_as_by_processes(self, long_run, started, read, tmp_path):
        """Half of the parts are gone when Ray goes on with what processes have begun."""
        words, n = long_run
        words[words.index("500")] = "50K"
        first = started(*words, "--engine", "processes")
        first.communicate(timeout=120)
        assert first.returncode == 0
        wanted = read(tmp_path / "out")
        for name in sorted(parts(tmp_path / "out"))[::2]:
            (tmp_path / "out" / name).unlink()
        report = finished(started(*words, "--engine", "ray", "--json"))
        assert report["engine"] == "ray"
        assert report["blocks"] >= report["blocks_before"] > 0
        assert read(tmp_path / "out") == wanted
        check_all(tmp_path / "out", read, n)

    @pytest.fixture
    def cluster(self, at_home, free_port) -> Iterator[str]:
        """The address of a cluster with three cores that runs already."""
        address = ["--node-ip-address", "127.0.0.1", "--port", str(free_port), "--num-cpus", "3"]
        # It ends with the command that started it; `ray stop` would end every other cluster of this machine too.
        words = ["start", "--head", "--block", "--include-dashboard", "false", "--disable-usage-stats"]
        # A test's own folder has too long a name for sockets.
        with tempfile.TemporaryDirectory(prefix="ray-") as folder:
            command = [sys.executable, "-m", "ray.scripts.scripts", *words, *address, "--temp-dir", folder]
            running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=at_home)
            try:
                assert any("Ray runtime started" in line for line in running.stdout)
                yield f"127.0.0.1:{free_port}"
                assert running.poll() is None  # whoever uses it leaves it running
            finally:
                running.terminate()
                running.communicate(timeout=60)

    def test_a_cluster_that_runs_already(self, cluster, at_home, long_run, started, read, tmp_path):
        words, n = long_run
        words[words.index("500")] = "50K"
        where = words.index("--workers")
        del words[where : where + 2]
        at_home["RAY_ADDRESS"] = cluster
        report = finished(started(*words, "--engine", "ray", "--json"))
        assert (report["engine"], report["workers"], report["documents"]) == ("ray", 3, n)
        check_all(tmp_path / "out", read, n)

    def test_a_faulty_row_is_one_line(self, started, model, tmp_path):
        (tmp_path / "a.jsonl").write_text('{"text": "a"}\nbroken\n')
        run = started(model, tmp_path / "a.jsonl", "--output", tmp_path / "out", "--engine", "ray", "--workers", 1)
        out, err = run.communicate(timeout=120)
        assert (run.returncode, out) == (2, "")
        assert re.fullmatch(r"circlet: .*a\.jsonl:2: found 'broken' .*; wanted a JSON object\n", err)

    def test_killed_worker_and_killed_driver(self, long_run, started, read, tmp_path):
        words, n = long_run
        words += ["--engine", "ray"]
        first = started(*words)
        wait_for(lambda: len(parts(tmp_path / "out")) >= 5)
        busy: list[int] = []  # its name is that of its task, while it has one
        wait_for(lambda: busy or busy.extend(busy_workers_of_ray(first.pid)))
        os.kill(busy[0], signal.SIGKILL)
        several = len(parts(tmp_path / "out")) + 20
        wait_for(lambda: len(parts(tmp_path / "out")) >= several)
        first.kill()
        first.communicate()
        before = parts(tmp_path / "out")
        assert finished(started(*words, "--json"), 200)["blocks_before"] >= len(before)
        after = parts(tmp_path / "out")
        assert {name: after[name] for name in before} == before
        check_all(tmp_path / "out", read, n)


def test_module_needs_no_torch(model, docs, tmp_path):
    code = (
        "import sys; sys.modules.update(torch=None, sklearn=None)\n"
        "from circlet.bulk import TagBatches\n"
        "print(TagBatches(sys.argv[1], k=1)({'text': ['label0']})['labels'][0])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(model)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("['")
