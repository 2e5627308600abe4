from __future__ import annotations

import json

import pytest


class TestEngine:
    def test_same_labels_as_without(self, circlet, model, topics, write_jsonl, tmp_path):
        rows = [{"id": row, **one} for row, one in enumerate(topics(40))]
        path = write_jsonl(tmp_path / "a.jsonl", rows)
        alone = circlet("predict", model, path, "--threshold", "0.3").stdout
        words = ["predict", model, f"{tmp_path}/*.jsonl", "--threshold", "0.3", "--output", tmp_path / "out"]
        words += ["--engine", "processes", "--block-size", "2K", "--workers", "2"]
        finished = circlet(*words)
        assert finished.returncode == 0
        assert finished.stdout == ""
        assert "out: 40 documents in 3 blocks; " in finished.stderr
        assert "documents/s by 2 workers" in finished.stderr
        parts = sorted((tmp_path / "out").glob("part-*"))
        assert len(parts) == 3
        assert "".join(part.read_text(encoding="utf-8") for part in parts) == alone
        report = json.loads(circlet(*words, "--json").stdout)
        assert report["blocks"] == 0
        assert report["blocks_before"] == 3
        assert report["engine"] == "processes"
        assert report["workers"] == 2

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--workers", "2"], "found --workers without --engine"),
            (["--block-size", "2K"], "found --block-size without --engine"),
            (["--format", "csv"], "found --format without --engine"),
            (["--engine", "steam", "--output", "out"], "found --engine steam; wanted one of processes, ray"),
            (["--engine", "processes"], "wanted --output with a folder"),
            (["--engine", "processes", "--output", "out", "--device", "cuda"], "wanted cpu"),
            (
                ["--engine", "processes", "--output", "out", "--block-size", "big"],
                "--block-size: found 'big'; wanted a size such as",
            ),
        ],
    )
    def test_options_that_do_not_fit(self, refused, tmp_path, monkeypatch, words, message):
        monkeypatch.chdir(tmp_path)
        assert message in refused("predict", "no model", "a.jsonl", *words)
        assert list(tmp_path.iterdir()) == []

    def test_standard_input(self, refused, tmp_path):
        line = refused("predict", "no model", "-", "--engine", "ray", "--output", tmp_path / "out")
        assert "found - as the input of --engine; wanted files" in line

    def test_faults_are_one_line(self, refused, model, data, tmp_path):
        words = ("predict", model, data / "train.jsonl", "--engine", "processes", "--output")
        (tmp_path / "other.txt").touch()
        assert "found 'other.txt' and no _plan.json" in refused(*words, tmp_path)
        assert "found no such file" in refused("predict", model, "none", *words[3:], tmp_path / "new")
        assert not (tmp_path / "new").exists()

    def test_folders_that_it_does_not_read(self, refused, model, tmp_path):
        (tmp_path / "docs" / "2024").mkdir(parents=True)
        (tmp_path / "docs" / "2024" / "a.txt").write_text("the fox\n", encoding="utf-8")
        words = ("--engine", "processes", "--output", tmp_path / "out")
        assert "found only folders, which are not searched" in refused("predict", model, tmp_path / "docs", *words)
        line = refused("predict", model, tmp_path / "docs" / "2024", *words)
        assert line.endswith("or circlet predict without --engine, which also reads plain texts")
        assert not (tmp_path / "out").exists()
