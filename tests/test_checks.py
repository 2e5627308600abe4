from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch

from circlet.checks import bytes_of, check_ranking, check_share, for_training, is_integer, is_real, require
from circlet.errors import DTypeError, MissingExtraError, ParameterError, ShapeError

INTEGERS = [0, -3, 10**400, np.int8(3), np.uint64(2**63)]
NO_INTEGERS = [True, False, np.True_, 1.0, np.float32(2), "1", None, [1], np.array([1])]
REALS = [0.5, np.float16(0.5), np.float32(-1), np.float64(2), Fraction(1, 3)]
NO_REALS = [True, np.False_, math.nan, math.inf, -np.inf, np.float32("nan"), 1j, "0.5", None, np.array([0.5])]


@pytest.mark.parametrize("value", INTEGERS)
def test_integers(value):
    assert is_integer(value) is is_integer(value, int(value)) is is_real(value) is True
    assert is_integer(value, int(value) + 1) is False


@pytest.mark.parametrize("value", NO_INTEGERS)
def test_no_integers(value):
    assert is_integer(value) is is_integer(value, 0) is False


@pytest.mark.parametrize("value", [*REALS, *NO_REALS], ids=repr)
def test_real_numbers(value):
    assert is_real(value) is any(value is each for each in REALS)


class TestSizes:
    @pytest.mark.parametrize(
        ("text", "size"),
        [
            ("4096", 4096),
            ("100b", 100),
            ("512K", 512_000),
            ("100kB", 100_000),
            ("5MB", 5_000_000),
            ("2G", 2_000_000_000),
            ("1 TB", 1_000_000_000_000),
            ("4KiB", 4096),
            ("64mib", 64 << 20),
            ("1.5 GiB", 3 << 29),
            ("2TiB", 2 << 40),
            ("2.3M", 2_300_000),  # as a float, it would be one byte less
            ("0.0019k", 1),
        ],
    )
    def test_by_hand(self, text, size):
        assert bytes_of(text, "--size") == size
        assert bytes_of(f" {text.swapcase()} ", "--size") == size

    @pytest.mark.parametrize(
        "text", ["", "much", "-1", "0", "0.1", "12X", "1e9", "MB", "5iB", "5Mi", "1..5G", "٣M", "9" * 400]
    )
    def test_no_sizes(self, text):
        with pytest.raises(
            ParameterError, match=r"--memory: found .*; wanted a size such as 500kB, 5MB, 2GiB, or bytes"
        ) as caught:
            bytes_of(text, "--memory")
        assert repr(text) in str(caught.value)

    def test_many_spaces(self):
        """A pattern that could divide them in two would try all ways to do so."""
        assert bytes_of("1" + " " * (1 << 16) + "KiB", "--size") == 1024
        with pytest.raises(ParameterError, match="--size: found"):
            bytes_of("1" + " " * (1 << 16) + "x", "--size")


class TestShares:
    @pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.25)])
    def test_valid(self, value):
        check_share("favor_rare", value)

    @pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf, None, "0.5", True])
    def test_invalid(self, value):
        with pytest.raises(ParameterError, match=r"`favor_rare`: found .*; wanted a number from 0 to 1"):
            check_share("favor_rare", value)
        with pytest.raises(ParameterError, match=r'`threshold`: found .*; wanted "auto" or a number from 0 to 1'):
            check_share("threshold", value, '"auto" or ')


class TestRanking:
    @pytest.mark.parametrize("mask", [None, np.ones(3, dtype=bool), torch.ones(3, dtype=torch.bool)])
    def test_valid(self, mask):
        check_ranking(3, None, mask, None)
        check_ranking(3, 1, mask, -2.5)

    @pytest.mark.parametrize("memory", [0, 1.5, "64M", True])
    def test_memory(self, memory):
        with pytest.raises(ParameterError, match=r"`memory`: found .*; wanted a number of bytes, at least 1"):
            check_ranking(3, memory, None, None)

    @pytest.mark.parametrize("threshold", [math.nan, "high", True])
    def test_threshold(self, threshold):
        with pytest.raises(ParameterError, match=r"`threshold`: found .*; wanted a number"):
            check_ranking(3, None, None, threshold)

    def test_allowed(self):
        for mask, found in ((np.ones(3), "float64"), (torch.ones(3), "torch.float32"), ([True] * 3, "list")):
            with pytest.raises(DTypeError, match=f"`allowed`: found {found}; wanted an array or tensor of bool"):
                check_ranking(3, None, mask, None)
        for mask in (np.ones(2, dtype=bool), torch.ones(2, dtype=torch.bool)):
            with pytest.raises(ShapeError, match=r"`allowed`: found shape \(2,\); wanted \(3,\)"):
                check_ranking(3, None, mask, None)


MESSAGE = r"this test needs {}, which is not installed: pip install 'circlet\[{}\]'"


class TestRequire:
    def test_what_is_installed(self):
        require("numpy", extra="none", purpose="this test")

    def test_what_is_not(self):
        with pytest.raises(MissingExtraError, match=MESSAGE.format("nothing_at_all", "plot")):
            require("nothing_at_all", extra="plot", purpose="this test")

    def test_names_what_pip_installs(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "sklearn", None)
        with pytest.raises(MissingExtraError, match=MESSAGE.format("scikit-learn", "train")):
            require("sklearn", extra="train", purpose="this test")


class TestForTraining:
    @pytest.mark.parametrize(("module", "package"), [("torch", "torch"), ("sklearn", "scikit-learn")])
    def test_what_is_missing(self, module, package, monkeypatch):
        for name in [module, *(name for name in sys.modules if name.partition(".")[0] == module)]:
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MissingExtraError, match=MESSAGE.format(package, "train")), for_training("this test"):
            __import__(f"{module}.utils")

    def test_other_modules_are_not_explained(self):
        with pytest.raises(ModuleNotFoundError, match="nothing_at_all"), for_training("this test"):
            __import__("nothing_at_all")


CODE = """
import sys
sys.modules[{blocked!r}] = None
import circlet
from circlet.errors import MissingExtraError

def missing(code):
    try:
        exec(code)
    except MissingExtraError as error:
        return str(error)

wanted = " needs {package}, which is not installed: pip install 'circlet[train]'"
for code, purpose in {cases!r}.items():
    assert missing(code) == purpose + wanted, (code, missing(code))
circlet.load, circlet.load_dataset, circlet.metrics.precision_at_k, circlet.errors.DataError
circlet.SpectralCodebook
"""


@pytest.mark.parametrize(
    ("blocked", "package", "cases"),
    [
        (
            "torch",
            "torch",
            {
                "circlet.CircletClassifier": "circlet.estimator",
                "circlet.algebra": "circlet.algebra",
                "from circlet import CircletClassifier": "circlet.estimator",
                "from circlet.algebra import circular": "circlet.algebra",
                "from circlet.model import Model": "circlet.model",
            },
        ),
        (
            "sklearn",
            "scikit-learn",
            {
                "from circlet.features import TextVectorizer as New; New().fit(['a'])": "fitting a TextVectorizer",
                "import circlet.features as f; f.TextVectorizer().transform(['a'])": "fitting a TextVectorizer",
                "circlet.CircletClassifier": "circlet.estimator",
            },
        ),
    ],
)
def test_the_library_says_what_to_install(blocked, package, cases):
    code = CODE.format(blocked=blocked, package=package, cases=cases)
    subprocess.run([sys.executable, "-c", code], check=True)
