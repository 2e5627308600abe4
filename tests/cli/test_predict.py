from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from circlet import CircletClassifier
from circlet.cli import app
from circlet.cli.predict import parse_bytes
from circlet.errors import ParameterError

TEXTS = ["a red apple", "a green apple", "a red car", "a green car"] * 5


TAGS = [["fruit", "red"], ["fruit"], ["red", "vehicle"], ["vehicle"]] * 5


@pytest.fixture(scope="module")
def tagger():
    return CircletClassifier(dim=64, hidden=(64,), epochs=8, batch_size=4, validation=0).fit(TEXTS, TAGS)


class TestCommand:
    @pytest.mark.parametrize(
        ("text", "amount"),
        [
            ("4096", 4096),
            ("512K", 512 << 10),
            ("64m", 64 << 20),
            ("256MB", 256 << 20),
            ("2G", 2 << 30),
            ("1.5 GiB", 3 << 29),
            ("100b", 100),
        ],
    )
    def test_amounts(self, text, amount):
        assert parse_bytes(text) == amount

    @pytest.mark.parametrize("text", ["", "much", "-1", "0", "0.1", "12X", "1e9", "MB", "1..5G", "٣M"])
    def test_invalid_amounts(self, text):
        with pytest.raises(ParameterError, match="--memory must be an amount like 512K, 256MB, 2G") as caught:
            parse_bytes(text)
        assert repr(text) in str(caught.value)

    def test_memory_changes_nothing(self, tagger, tmp_path):
        tagger.save(tmp_path / "model")
        (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
        arguments = ["predict", str(tmp_path / "model"), str(tmp_path / "texts.jsonl")]
        runs = [CliRunner().invoke(app, arguments + more) for more in ([], ["--memory", "1K"])]
        assert [run.exit_code for run in runs] == [0, 0]
        assert runs[0].stdout == runs[1].stdout
        assert len(runs[0].stdout.splitlines()) == len(TEXTS)
