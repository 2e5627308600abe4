from __future__ import annotations

import re

import pytest
import torch
from threadpoolctl import threadpool_limits

from circlet.cli import options
from circlet.errors import DataError
from circlet.settings import DEFAULTS
from circlet.threads import worker_count

#: Settings that no option of `circlet train` changes.
WITHOUT_OPTION = {"word_ngrams"}
#: Options whose name is not that of the setting.
OTHERWISE = {"threshold_for": "for"}


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


class TestDefaults:
    @pytest.fixture
    def shown(self, circlet) -> dict[str, str]:
        """The default of each option, as the help shows it."""
        text = circlet("train", "--help", COLUMNS="200").stdout
        return dict(re.findall(r"--([a-z-]+) .*\[default: \(([^\]]*)\)\]", text))

    def test_an_option_for_every_setting(self, circlet):
        text = circlet("train", "--help", COLUMNS="200").stdout
        found = set(re.findall(r"--([a-z-]+)", text))
        missing = {name for name in DEFAULTS if OTHERWISE.get(name, name.replace("_", "-")) not in found}
        assert missing == WITHOUT_OPTION

    def test_the_help_shows_the_defaults_of_the_library(self, shown):
        for name in DEFAULTS.keys() - WITHOUT_OPTION:
            value = DEFAULTS[name]
            expected = (
                ",".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else str(value)
            )
            expected = "join" if name == "join" else expected  # a flag shows its own name
            assert shown[OTHERWISE.get(name, name.replace("_", "-"))] == expected
