from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

import pytest
import torch
import typer
from threadpoolctl import threadpool_limits

from circlet.cli import options
from circlet.errors import DataError, ParameterError
from circlet.model import Model
from circlet.runtime import RuntimeModel
from circlet.settings import DEFAULTS
from circlet.settings.network import shown
from circlet.settings.run import all_settings
from circlet.storage import layout
from circlet.threads import worker_count


def load_nothing(name: str) -> None:
    raise DataError(f"{name}: found nothing")


@pytest.fixture
def _threads(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr("circlet.threads._chosen", None)
    with threadpool_limits():  # restores BLAS's threads afterwards
        yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
class TestThreads:
    def test_as_many_as_asked_for(self):
        options.use_torch("this test", 3)
        assert torch.get_num_threads() == 3
        options.use_torch("this test", None)
        assert torch.get_num_threads() == 3

    @pytest.mark.parametrize("command", ["train", "predict", "evaluate", "demo", "embed"])
    def test_every_command_that_computes_takes_them(self, circlet, command, model, data, tmp_path, monkeypatch):
        if command == "demo":  # whose data takes long to build
            monkeypatch.setattr("circlet.data.load_dataset", load_nothing)
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")  # embed sets both for its process, which is that of the tests
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "0")
        words = {
            "train": [tmp_path / "nothing", "--model", tmp_path / "m"],
            "predict": [model, "-"],
            "evaluate": [model, data],
            "demo": [],
            "embed": [data, "--sentence-model", tmp_path / "nothing", "--output", tmp_path / "o"],
        }[command]
        circlet(command, *words, "--threads", "2", stdin="a fox\n")
        assert (worker_count() if command in ("predict", "evaluate") else torch.get_num_threads()) == 2

    @pytest.mark.parametrize("threads", ["0", "-1", "many"])
    def test_bad_numbers(self, refused, threads, model):
        assert "--threads" in refused("predict", model, "-", "--threads", threads)


@pytest.mark.usefixtures("_threads")
class TestLoadModel:
    @pytest.mark.parametrize("device", ["auto", "cpu"])
    def test_on_a_cpu(self, device, model):
        assert isinstance(options.load_tagger(model, device, None).model_, RuntimeModel)

    def test_the_configuration_is_read_once(self, model, monkeypatch):
        read = []
        monkeypatch.setattr(layout, "sealed", lambda config, real=layout.sealed: read.append(1) or real(config))
        options.load_tagger(model, "cpu", None)
        assert read == [1]

    def test_on_a_gpu(self, model):
        if torch.cuda.is_available():
            assert isinstance(options.load_tagger(model, "cuda", None).model_, Model)
        else:
            with pytest.raises(ParameterError, match="`device` 'cuda' is not available"):
                options.load_tagger(model, "cuda", None)

    def test_devices_that_nobody_knows(self, model):
        with pytest.raises(ParameterError, match="`device` 'gpu' is not available"):
            options.load_tagger(model, "gpu", None)


class TestSettings:
    """`circlet train` has an option for each setting, made from its field."""

    @pytest.fixture
    def taken(self, monkeypatch) -> Callable[..., dict[str, Any]]:
        """The settings that a command gets."""

        @options.with_settings({"Data": ("data",), **dict.fromkeys(["What matters", "Network"], ()),
                                "Optimization": (), "Output": ()})  # fmt: skip
        def command(data: Annotated[str, typer.Argument()], settings: dict[str, Any] | None = None) -> None:
            found.update(settings or {})

        found: dict[str, Any] = {}
        app = typer.Typer(add_completion=False)
        app.command()(command)

        def run(*words: str) -> dict[str, Any]:
            found.clear()
            typer.main.get_command(app).main(["mine", *words], standalone_mode=False)
            return {name: value for name, value in found.items() if value is not None}

        return run

    def test_there_is_one_for_each(self, taken):
        names = {name for name, each in all_settings().items() if each.panel}
        assert names == set(DEFAULTS) - {"word_ngrams"}
        assert taken() == {}

    def test_words_become_values(self, taken):
        words = "--hidden 768,384 --char-ngrams 3,5 --lr 0.5 --dim 8 --no-join --for precision=0.9 --validation 40"
        assert taken(*words.split()) == {
            "hidden": (768, 384), "char_ngrams": (3, 5), "lr": 0.5, "dim": 8, "join": False,
            "threshold_for": "precision=0.9", "validation": 40.0,
        }  # fmt: skip
        assert taken("--char-ngrams", "none", "--join") == {"char_ngrams": "none", "join": True}

    def test_words_that_are_none(self, taken):
        with pytest.raises(ParameterError, match="--char-ngrams: found '3-5'; wanted integers separated"):
            taken("--char-ngrams", "3-5")

    def test_the_help_shows_choices_and_defaults(self, circlet):
        text = circlet("train", "--help", COLUMNS="300").stdout
        lines = dict(re.findall(r"│ --([a-z-]+)[ ,].*?  +(.*?) +│", text))
        for name, each in all_settings().items():
            if each.panel:
                option = (each.option or name).removeprefix("--").partition("/")[0].replace("_", "-")
                usual = shown(each.usual)
                if each.kind.type is bool:  # a flag shows its own name
                    usual = each.option.split("/")[not each.usual].removeprefix("--")
                assert lines[option].startswith(each.help)
                assert lines[option].endswith(f"[{usual}]")
                assert all(choice in lines[option] for choice in each.kind.choices)
