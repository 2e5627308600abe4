from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from circlet.checks import bytes_of, check_share, for_training, is_integer, is_real, require
from circlet.errors import MissingExtraError, ParameterError

INTEGERS = [0, -3, 10**400, np.int8(3), np.uint64(2**63)]
NO_INTEGERS = [True, False, np.True_, 1.0, np.float32(2), "1", None, [1], np.array([1])]
REALS = [0.5, np.float16(0.5), np.float32(-1), np.float64(2), Fraction(1, 3)]
NO_REALS = [True, np.False_, math.nan, math.inf, -np.inf, np.float32("nan"), 1j, "0.5", None, np.array([0.5])]


def test_numbers():
    for value in INTEGERS:
        assert is_integer(value) is is_integer(value, int(value)) is is_real(value) is True, value
        assert is_integer(value, int(value) + 1) is False, value
    for value in NO_INTEGERS:
        assert is_integer(value) is is_integer(value, 0) is False, repr(value)
    assert all(is_real(value) is True for value in REALS)
    assert [value for value in NO_REALS if is_real(value) is not False] == []


class TestSizes:
    def test_by_hand(self):
        for text, size in {
            "4096": 4096,
            "100b": 100,
            "512K": 512_000,
            "100kB": 100_000,
            "5MB": 5_000_000,
            "2G": 2_000_000_000,
            "1 TB": 1_000_000_000_000,
            "4KiB": 4096,
            "64mib": 64 << 20,
            "1.5 GiB": 3 << 29,
            "2TiB": 2 << 40,
            "2.3M": 2_300_000,  # as a float, it would be one byte less
            "0.0019k": 1,
        }.items():
            assert bytes_of(text, "--size") == bytes_of(f" {text.swapcase()} ", "--size") == size

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


def test_shares():
    for value in (0, 1, 0.5, np.float32(0.25)):
        check_share("favor_rare", value)
    for value in (-0.1, 1.1, math.nan, math.inf, None, "0.5", True):
        with pytest.raises(ParameterError, match=r"`favor_rare`: found .*; wanted a number from 0 to 1"):
            check_share("favor_rare", value)
        with pytest.raises(ParameterError, match=r'`threshold`: found .*; wanted "auto" or a number from 0 to 1'):
            check_share("threshold", value, '"auto" or ')


MESSAGE = r"this test needs {}, which is not installed: pip install 'circlet\[{}\]'"


def test_a_missing_package_is_named_as_pip_does(monkeypatch):
    require("numpy", extra="none", purpose="this test")
    monkeypatch.setitem(sys.modules, "sklearn", None)
    cases = ("nothing_at_all", "nothing_at_all", "plot"), ("sklearn", "scikit-learn", "train")
    for module, package, extra in cases:
        with pytest.raises(MissingExtraError, match=MESSAGE.format(package, extra)):
            require(module, extra=extra, purpose="this test")


@pytest.mark.parametrize(("module", "package"), [("torch", "torch"), ("sklearn", "scikit-learn")])
def test_what_is_missing_for_training(module, package, monkeypatch):
    for name in [module, *(name for name in sys.modules if name.partition(".")[0] == module)]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=MESSAGE.format(package, "train")), for_training("this test"):
        __import__(f"{module}.utils")
    # Other modules are not explained.
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


WITHOUT = {
    "torch": {
        "circlet.CircletClassifier": "circlet.estimator",
        "circlet.algebra": "circlet.algebra",
        "from circlet import CircletClassifier": "circlet.estimator",
        "from circlet.algebra import circular": "circlet.algebra",
        "from circlet.model import Model": "circlet.model",
    },
    "sklearn": {
        "from circlet.features import TextVectorizer as New; New().fit(['a'])": "fitting a TextVectorizer",
        "import circlet.features as f; f.TextVectorizer().transform(['a'])": "fitting a TextVectorizer",
        "circlet.CircletClassifier": "circlet.estimator",
    },
}


@pytest.mark.parametrize(("blocked", "package"), [("torch", "torch"), ("sklearn", "scikit-learn")])
def test_the_library_says_what_to_install(blocked, package):
    code = CODE.format(blocked=blocked, package=package, cases=WITHOUT[blocked])
    subprocess.run([sys.executable, "-c", code], check=True)
