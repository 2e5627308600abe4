from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from circlet.cli import explain as module
from circlet.runtime.explain import Contribution, Explanation

SAVED = Path(__file__).parents[1] / "saved"
TEXT = "The Wolf met a tram; the wolf ran."


@pytest.fixture(scope="module")
def indexed(works, small, topics, write_jsonl, tmp_path_factory) -> Path:
    """A model of documents with ids, and an index of them."""
    folder = tmp_path_factory.mktemp("indexed")
    rows = [{"id": f"d{i}", **row} for i, row in enumerate(topics(60))]
    works("train", write_jsonl(folder / "a.jsonl", rows), "--model", folder / "m", *small, "--keep-index")
    return folder / "m"


def test_json(as_json, predict, model):
    found = as_json("explain", model, TEXT, "-k", "2")["explanations"]
    assert {each["label"] for each in found} == {"animal", "vehicle"}
    animal = next(each for each in found if each["label"] == "animal")
    best = max(animal["contributions"], key=lambda each: each["value"])
    assert (best["term"], best["kind"]) == ("wolf", "word") or "wol" in best["term"]
    wolf = next(each for each in animal["contributions"] if (each["term"], each["kind"]) == ("wolf", "word"))
    assert wolf["spans"] == [[4, 8], [25, 29]]
    total = sum(each["value"] for each in animal["contributions"])
    assert total == pytest.approx(animal["score"] - animal["base"], abs=1e-4)
    assert sum(value for _, _, value in animal["spans"]) == pytest.approx(total, abs=1e-6)
    (predicted,) = predict(model, TEXT, "-k", "2", "--threshold", "0")
    assert [each["label"] for each in found] == predicted["labels"]
    assert [round(each["probability"], 4) for each in found] == pytest.approx(predicted["scores"], abs=1e-4)


def test_a_table_and_the_text(works, model):
    words = " ".join(works("explain", model, TEXT, "--label", "animal").stdout.split())
    for part in ("[+Wolf+]", "[+wolf+]", "animal: probability", "“wolf” +", "(empty document)"):
        assert part in words
    for part in ("[+tram", "vehicle"):
        assert part not in words
    # What a terminal would obey is not printed.
    assert "\x1b" not in works("explain", model, "wolf \x1b[31m fox", "-k", "1").stdout


def test_with_colors_and_without():
    contributions = [
        Contribution("wolf", "word", 2.0, [(4, 8), (25, 29)]),
        Contribution("tram", "word", -0.9, [(15, 19)]),
        Contribution("am;", "characters", -0.6, [(17, 20)]),
        Contribution("met a", "word", 0.4, [(9, 14)]),
    ]
    found = Explanation("animal", 0.7, 0.5, 0.0, contributions, 0.0)
    plain = module._marked(TEXT, found).plain
    assert plain == "The [+Wolf+] met a [-tram-]; the [+wolf+] ran."
    file = io.StringIO()
    terminal = Console(file=file, force_terminal=True, color_system="standard", width=200)
    terminal.print(module._marked(TEXT, found, terminal))
    shown = file.getvalue()
    assert "\x1b[1;32mWolf\x1b[0m \x1b[32mmet\x1b[0m a \x1b[1;31mtram\x1b[0m\x1b[31m;\x1b[0m the" in shown
    assert "[+" not in shown


def test_standard_input_a_row_of_data_and_nothing_known(as_json, works, model, data, topics):
    text = topics(240)[203]["text"]
    alone = as_json("explain", model, text)
    assert as_json("explain", model, "-", stdin=f"{text}\n") == alone
    assert as_json("explain", model, data, "--row", 3) == alone
    (found,) = as_json("explain", model, "zzz", "-k", "1")["explanations"]
    assert found["score"] == pytest.approx(found["base"])
    assert found["contributions"] == []
    works("explain", model, "")


def test_rows(as_json, works):
    words = ("explain", SAVED / "matrix", SAVED / "rows", "--row", 0)
    first = as_json(*words)["explanations"][0]
    assert {each["kind"] for each in first["contributions"]} == {"feature"}
    assert first["spans"] == []
    assert first["contributions"][0]["term"] in works(*words, "-k", 1).stdout


class TestSimilar:
    def test_ids_of_documents(self, as_json, works, indexed, topics):
        text = topics(60)[7]["text"]
        found = as_json("explain", indexed, text, "--similar", 3)["similar"]
        assert [each["id"][0] for each in found] == ["d"] * 3
        own = set(topics(60)[7]["labels"])
        assert all(set(topics(60)[int(each["id"][1:])]["labels"]) == own for each in found)
        assert found[0]["id"] in works("explain", indexed, text, "--similar", 3, "-k", 1).stdout

    def test_what_other_commands_do_with_the_index(
        self, as_json, works, refused, indexed, topics, write_jsonl, tmp_path
    ):
        sizes = as_json("info", indexed, "--verify")["bytes"]
        assert sizes["index.safetensors"] == pytest.approx(60 * (128 + 4 + 6), rel=0.2)
        assert "documents in the index 60" in " ".join(works("info", indexed).stdout.split())
        works("compress", indexed, "--store", "int8", "--output", tmp_path / "small")
        assert not (tmp_path / "small" / "index.safetensors").exists()
        assert "without an index" in refused("explain", tmp_path / "small", "fox", "--similar", 1)
        copied = Path(shutil.copytree(indexed, tmp_path / "m"))
        more = write_jsonl(tmp_path / "more.jsonl", [{"id": "new", **topics(1)[0]}, topics(2)[1]])
        works("train", more, "--model", copied, "--continue", "--epochs", 1, "--device", "cpu")
        found = as_json("explain", copied, topics(1)[0]["text"], "--similar", 62)["similar"]
        ids = [each["id"] for each in found]
        assert len(ids) == 62
        assert {"d0", "d59", "new", 1} <= set(ids)

    def test_an_index_can_not_begin_later(self, refused, model, data):
        line = refused("train", data, "--model", model, "--continue", "--keep-index", "--epochs", 1)
        assert f"--continue: {model} has no index" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{model}", TEXT, "--label", "anmial"], "'anmial'; wanted one of the 4 labels (did you mean animal?)"),
        (["{model}", "{data}", "--row", 40], "--row: found 40; wanted 0 to 39, the rows of {data}"),
        (["{model}", SAVED / "rows", "--row", 0], "this model was trained on texts and wants texts"),
        ([SAVED / "matrix", "a text"], "wants feature rows: a file or folder with such rows, and --row"),
        (["{model}", "-"], "stdin: found bytes that are not UTF-8"),
        (["{model}", TEXT, "--similar", 2], "wanted one trained with --keep-index"),
    ],
)
def test_mistakes(refused, model, data, words, message):
    line = refused("explain", *(str(word).format(model=model, data=data) for word in words), stdin=b"\xff\xfe\xff")
    assert message.format(data=data) in line


def test_labels_near_a_label(as_json, works, refused, model):
    found = as_json("info", model, "--near", "animal")
    assert found["label"] == "animal"
    assert sorted(each["label"] for each in found["near"]) == ["food", "vehicle", "weather"]
    values = [each["similarity"] for each in found["near"]]
    assert values == sorted(values, reverse=True)
    assert "Labels near animal" in works("info", model, "--near", "animal").stdout
    assert "(did you mean food?)" in refused("info", model, "--near", "fodo")
