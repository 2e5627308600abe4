from __future__ import annotations

import pytest

from circlet import CircletClassifier
from circlet.cli.info import draw_history
from circlet.model import Model
from circlet.storage import layout
from circlet.storage.contents import KEPT


def test_info(as_json, circlet, model, tmp_path):
    described = as_json("info", model)
    assert described["n_labels"] == 4
    assert described["parameters"]["head"] == 32 * 128 + 128
    assert described["bytes"]["total"] == sum(path.stat().st_size for path in model.iterdir())
    picture = tmp_path / "history.png"
    finished = circlet("info", model, "--plot", picture)
    assert "chrr" in finished.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_history_of_each_network_is_a_line():
    """Epochs of training further have no metric."""
    records = [{"epoch": epoch, "loss": 1 / epoch, "P@1": 0.5} for epoch in (1, 2)] + [{"epoch": 3, "loss": 0.3}]
    several = [{"member": member, **record} for member in (1, 2) for record in records]
    for history, lines in ((records, 1), (several, 2)):
        losses, metrics = (axis.lines for axis in draw_history(history).axes)
        assert [list(line.get_xdata()) for line in losses][:-1] == [[1, 2, 3]] * lines  # the last is a mark
        assert [list(line.get_ydata()) for line in metrics] == [[50, 50]] * lines


@pytest.mark.parametrize(("kept", "epoch", "word"), [(2, 2, "kept"), (1, 1, "kept"), (None, 3, "kept: the last")])
def test_the_epoch_that_was_kept_is_marked(kept, epoch, word):
    history = [{"epoch": each, "loss": 1 / each, "P@1": 0.5, KEPT: each == kept} for each in (1, 2, 3)]
    axis = draw_history(history).axes[0]
    assert [mark.get_text() for mark in axis.texts] == [word]
    assert list(axis.lines[-1].get_xdata()) == [epoch, epoch]


@pytest.mark.parametrize("store", ["float32", "bf16", "int8"])
def test_how_weights_are_stored(as_json, circlet, store, model, tmp_path):
    Model.load(model).save(tmp_path / "m", store)
    described = as_json("info", tmp_path / "m")
    assert described["store"] == store
    weights = (tmp_path / "m" / "weights.safetensors").stat().st_size
    assert described["bytes"]["weights.safetensors"] == weights
    shown = circlet("info", tmp_path / "m").stdout
    assert f"weights stored as {store}" in " ".join(shown.split())
    assert f"{weights:,}" in shown


def test_a_listed_file_that_is_missing(refused, model, tmp_path):
    CircletClassifier.load(model).save(tmp_path / "m")
    (tmp_path / "m" / "estimator.json").unlink()
    assert "estimator.json: found no readable file (No such file or directory)" in refused("info", tmp_path / "m")


class TestVerify:
    def test_a_good_one(self, as_json, circlet, copied):
        assert as_json("info", copied, "--verify")["verified"] is True
        assert "digests of all files, verified" in " ".join(circlet("info", copied, "--verify").stdout.split())

    def test_damage_that_only_it_finds(self, circlet, refused, copied, monkeypatch, change_config):
        # As if the model were large, and checked at its start and end.
        monkeypatch.setattr(layout, "LARGE", 5000)
        monkeypatch.setattr(layout, "SPOTS", 2)
        change_config(copied)
        path = copied / "weights.safetensors"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        assert circlet("info", copied).returncode == 0
        line = refused("info", copied, "--verify")
        assert "weights.safetensors: found other content than config.json describes (another digest)" in line

    @pytest.mark.parametrize(
        "history",
        [
            *("", "[{}]", '[{"epoch": "1"}]', "[" * 900 + "]" * 900),
            *(
                f'[{{"epoch": 1, {wrong}}}]'
                for wrong in ('"loss": NaN', '"loss": 1e400', '"loss": "low"', '"P@1": null', '"member": []')
            ),
        ],
    )
    @pytest.mark.parametrize("option", [[], ["--plot", "history.png"]], ids=["shown", "drawn"])
    def test_a_damaged_history(self, refused, copied, change_config, history, option, monkeypatch):
        monkeypatch.chdir(copied.parent)
        (copied / "history.json").write_text(history)
        change_config(copied)
        assert "history.json: found " in refused("info", copied, *option)


def test_a_model_without_epochs_to_draw(refused, model, tmp_path):
    loaded, picture = Model.load(model), tmp_path / "a.png"
    loaded.history = []
    loaded.save(tmp_path / "m")
    assert "history.json: found no epochs to draw" in refused("info", tmp_path / "m", "--plot", picture)
    assert not picture.exists()


@pytest.mark.parametrize("words", ["predict {folder} -", "info {folder}"])
def test_an_interrupted_run_is_not_a_model(refused, tmp_path, words):
    (tmp_path / "checkpoint.safetensors").touch()
    words = words.format(folder=tmp_path).split()
    line = refused(*words)
    assert "found an interrupted run" in line
    assert "to go on: the same `fit`, resume=True" in line
    (tmp_path / "run.json").touch()
    line = refused(*words)
    assert "found an interrupted run" in line
    assert line.endswith(f"to go on: circlet train DATA --model {tmp_path} --resume")
