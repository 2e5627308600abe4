from __future__ import annotations

import subprocess
import sys

import pytest

from circlet.checks import for_training, require
from circlet.errors import MissingExtraError

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
        for name in [name for name in sys.modules if name.partition(".")[0] == module]:
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
