from __future__ import annotations

import json

from circlet.cli import data as datasets


def test_a_download_says_how_large_and_how_fast_it_was(capsys):
    clock = iter([10.0, 14.0])
    with datasets._fetch_bar("eurlex-4k", lambda: next(clock)) as download, download(8_000_000) as tracker:
        tracker.update(3_000_000)
        tracker.update(5_000_000)
    assert capsys.readouterr() == ("", "eurlex-4k: downloaded 8.0 MB, 2.0 MB/s\n")


def test_list(circlet):
    assert "eurlex-4k" in circlet("datasets", "list").stdout
    known = {row["name"]: row for row in json.loads(circlet("datasets", "list", "--json").stdout)}
    assert known["amazon-670k"]["a"] == 0.6
    assert known["eurlex-4k"]["labels"] == 3993


def test_info_of_a_file(circlet, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"text": "a red fox", "labels": ["animal", "red"]}\n{"text": "a car", "labels": []}\n')
    described = json.loads(circlet("datasets", "info", path, "--json").stdout)
    assert described["train_points"] == 2
    assert described["labels"] == 2
    assert described["empty_rows_train"] == 1
    assert "JSONL" in described["format"]
    assert "labels per point" in circlet("datasets", "info", path).stdout


class TestMistakes:
    def test_an_unknown_name(self, refused):
        line = refused("datasets", "info", "nowhere")
        assert "'nowhere'" in line
        assert "circlet datasets list" in line
        line = refused("datasets", "fetch", "nowhere")
        assert "'nowhere'" in line
        assert "eurlex-4k" in line

    def test_what_nobody_may_fetch(self, refused, tmp_path):
        line = refused("datasets", "fetch", "wiki10-31k", CIRCLET_DATA=str(tmp_path))
        assert "train.txt and test.txt" in line
        assert str(tmp_path / "wiki10-31k") in line

    def test_a_damaged_file(self, refused, tmp_path):
        damaged = tmp_path / "damaged.jsonl"
        damaged.write_text('{"text": "a", "labels": ["b"]}\n{"text": \n')
        line = refused("datasets", "info", damaged)
        assert "damaged.jsonl:2" in line
        assert "wanted" in line
