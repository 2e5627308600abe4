"""Commands without torch and scikit-learn: those that use a model work, and others say what to install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse as sp

from circlet import files
from circlet.data.matrices import write_sparse_text, write_xmc

ROOT = Path(__file__).parents[2]
SAVED = ROOT / "tests" / "saved"
#: Runs commands in one process, which saves starting one for each: JSON lists of words in, what each did out.
DRIVER = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
for name in sys.argv[1].split(","):
    sys.modules[name] = None
from circlet.cli import main
commands, finished = json.load(sys.stdin), []
for words in commands:
    sys.argv, sys.stdin = ["circlet", *words], io.TextIOWrapper(io.BytesIO(b"the fox\\n"), encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            finished.append((ended.code, out.getvalue(), err.getvalue()))
print(json.dumps(finished))
"""


def run_without(modules: str, commands: list[list[str]], folder: Path) -> list[tuple[int, str, str]]:
    words, given = [sys.executable, "-c", DRIVER, modules], json.dumps(commands)
    done = subprocess.run(words, input=given, capture_output=True, encoding="utf-8", check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [(status, out, err) for status, out, err in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def layouts(tmp_path_factory, data) -> dict[str, list[str]]:
    """The arguments of `predict` for every format that it reads: a model, and documents for it."""
    folder = tmp_path_factory.mktemp("layouts")
    X, Y = sp.load_npz(SAVED / "rows" / "X.trn.npz"), sp.load_npz(SAVED / "rows" / "Y.trn.npz")
    write_xmc(folder / "repository.txt", X, Y)
    write_xmc(folder / "rows.svm", X, Y, header=False)
    (folder / "pair").mkdir()
    write_sparse_text(folder / "pair" / "trn_X_Xf.txt", X)
    write_sparse_text(folder / "pair" / "trn_X_Y.txt", Y)
    texts = {
        "a.jsonl": '{"text": "the fox"}\n',
        "a.csv": "text,labels\nthe fox,animal\n",
        "a.tsv": "text\tlabels\nthe fox\tanimal\n",
        "a.ft": "__label__animal the fox\n",
        "annif.tsv": "the fox\t<animal>\n",
    }
    for name, content in texts.items():
        files.write_text(folder / name, content)
    of_rows = [folder / "repository.txt", folder / "rows.svm", folder / "pair", SAVED / "rows"]
    of_texts = [*(folder / name for name in texts), data, Path("-")]
    return {
        **{f"rows {path.name}": [str(SAVED / "matrix"), str(path)] for path in of_rows},
        **{f"texts {path.name}": [str(SAVED / "text"), str(path)] for path in of_texts},
    }


def test_models_are_used_as_ever(circlet, model, data, layouts, tmp_path):
    predicts = [["predict", *words] for words in layouts.values()]
    commands = [
        *predicts,
        ["evaluate", str(model), str(data), "--threads", "1"],
        ["info", str(model), "--json", "--plot", "history.png"],
        ["info", str(model), "--near", "animal"],
        ["explain", str(model), "the fox"],
        ["compress", str(model), "--data", str(data), "--output", "copy"],
        ["predict", "copy", "-", "--output", "tagged.csv"],
        ["export", str(model), "tagger.onnx"],
        ["datasets", "list"],
        ["datasets", "info", str(data)],
        ["train", "--help"],
    ]
    for words, (status, out, err) in zip(commands, run_without("torch,sklearn", commands, tmp_path), strict=True):
        assert status == 0, (words, err)
        assert out or words[-1] in ("copy", "tagged.csv", "tagger.onnx"), words
        if words in predicts:  # as where torch is installed
            assert out == circlet(*words, stdin="the fox\n").stdout, words
    assert {path.name for path in tmp_path.iterdir()} >= {"copy", "tagged.csv", "tagger.onnx"}


class TestWhatNeedsMore:
    @pytest.fixture
    def unchanged(self, tmp_path, model, monkeypatch) -> Any:
        """Fail if a test changes anything in its folder, in the model's or among the datasets."""
        monkeypatch.setenv("CIRCLET_DATA", str(tmp_path / "data"))

        def state() -> list[tuple[Path, int]]:
            paths = [*tmp_path.rglob("*"), *model.rglob("*")]
            return sorted((path, path.stat().st_mtime_ns) for path in paths)

        before = state()
        yield
        assert state() == before

    @pytest.mark.usefixtures("unchanged")
    def test_without_torch(self, model, data, tmp_path):
        purposes = {
            f"train {data} --model new": "training",
            f"train {data} --model new --threads 1": "training",
            f"train {data} --model {model} --overwrite": "training",
            "demo": "training",
            "reproduce capacity --quick": "an experiment",
            "reproduce table --quick": "an experiment",
            f"predict {model} - --device cuda": "running on cuda",
            f"evaluate {model} {data} --device cuda": "running on cuda",
            f"embed {data} --sentence-model m --output e": "embedding texts",
        }
        pairs = [(purpose, command.split()) for command, purpose in purposes.items()]
        finished = run_without("torch", [words for _, words in pairs], tmp_path)
        for (purpose, words), (status, out, err) in zip(pairs, finished, strict=True):
            extra = "embed" if words[0] == "embed" else "train"
            wanted = f"circlet: {purpose} needs torch, which is not installed: pip install 'circlet[{extra}]'\n"
            assert (status, out, err) == (2, "", wanted), words

    @pytest.mark.usefixtures("unchanged")
    def test_without_scikit_learn(self, model, data, tmp_path):
        commands = [["train", str(data), "--model", str(model), "--overwrite"], ["demo"]]
        wanted = "circlet: training needs scikit-learn, which is not installed: pip install 'circlet[train]'\n"
        assert run_without("sklearn", commands, tmp_path) == [(2, "", wanted)] * 2


def test_help_needs_no_extra(tmp_path):
    extras = "matplotlib,fastapi,starlette,prometheus_client,uvicorn,onnx,pyarrow"
    ((status, out, err),) = run_without(f"torch,sklearn,scipy,{extras}", [["--help"]], tmp_path)
    assert (status, err) == (0, "")
    assert "predict" in out


def test_the_runtime_is_soon_imported():
    """At most 0.15 s after NumPy and SciPy, on an idle machine; this counts what would make it slower."""
    code = (
        "import sys, numpy, scipy.sparse, scipy.fft\n"
        "before = set(sys.modules)\n"
        "import circlet.runtime\n"
        "more = {name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "assert more == {'circlet', 'safetensors'} or more == {'circlet'}, more"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "constraints.txt").exists(), reason="not a source checkout")
def test_an_environment_without_torch(circlet, model, data, tmp_path):
    folder = tmp_path / "environment"
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    # Neither the tests' packages nor this checkout may answer.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # pip asks compilers for their versions, and some write into the user's folder then.
    home = tmp_path / "home"
    home.mkdir()
    environment |= {"HOME": str(home), "USERPROFILE": str(home)}
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, env=environment)

    def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        where: Any = {"cwd": tmp_path, "env": environment}
        return subprocess.run(
            [python, *words], input=stdin, capture_output=True, encoding="utf-8", check=False, **where
        )

    pip = ("-m", "pip", "install", "--disable-pip-version-check", "--quiet")
    # The only thing to skip for is a machine that can't download; a package that can't be built is a failure.
    if run(*pip, "numpy").returncode:
        pytest.skip("pip can't install numpy here: there is no network, or no index")
    installed = run(*pip, "--constraint", str(ROOT / "constraints.txt"), str(ROOT))
    assert installed.returncode == 0, installed.stderr
    for name in ("torch", "sklearn"):
        assert "No module named" in run("-c", f"import {name}").stderr
    sentence = "the fox and the wolf\n"
    predicted = run("-m", "circlet", "predict", str(model), "-", stdin=sentence)
    assert predicted.returncode == 0, predicted.stderr
    assert json.loads(predicted.stdout)["labels"][0] == "animal"
    here = json.loads(circlet("predict", model, "-", stdin=sentence).stdout)
    there = json.loads(predicted.stdout)
    assert there["labels"] == here["labels"]
    assert there["scores"] == pytest.approx(here["scores"], abs=1e-3)
    assert run("-m", "circlet", "evaluate", str(model), str(data)).returncode == 0
    refused = run("-m", "circlet", "train", str(data), "--model", "new")
    assert refused.returncode == 2
    assert refused.stderr.strip().endswith("pip install 'circlet[train]'")
    assert not (tmp_path / "new").exists()
