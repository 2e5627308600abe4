"""A stock Annif, in an environment of its own, suggests through its `http` backend and a running circlet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from circlet.model import Model
from circlet.runtime import load

#: An environment that has Annif already; without it, one is made, which takes minutes.
VARIABLE = "CIRCLET_TEST_ANNIF"
PROJECT = """[colors]
name=Colors
language=en
backend=http
endpoint={url}/v1/projects/colors/suggest
vocab=colors
limit=3
"""


@pytest.fixture(scope="module")
def annif(tmp_path_factory) -> Path:
    """Annif's command."""
    programs = "Scripts" if os.name == "nt" else "bin"
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen) / programs / "annif"
    folder = tmp_path_factory.mktemp("annif") / "environment"
    home = tmp_path_factory.mktemp("home")
    own = {**os.environ, "HOME": str(home), "USERPROFILE": str(home)}
    own.pop("PYTHONPATH", None)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, env=own)
    pip = [str(folder / programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "annif"], capture_output=True, text=True, check=False, env=own)
    if done.returncode:
        pytest.skip(f"Annif can't be installed here: {done.stderr.strip()[-200:]}")
    return folder / programs / "annif"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the service is stopped by a signal")
def test_annif_suggests_what_circlet_says(annif, folder, tmp_path):
    model = Model.load(folder)
    model.label_names = [f"http://example.org/{number}" for number in range(model.n_labels)]
    folder = tmp_path / "colors"
    model.save(folder)
    service = subprocess.Popen(
        [sys.executable, "-m", "circlet", "serve", str(folder), "--port", "0", "--no-learn"],
        stderr=subprocess.PIPE,
        text=True,
    )
    home = tmp_path / "home"
    home.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str, text: str = "") -> str:
        done = subprocess.run(
            [str(annif), *words], input=text, capture_output=True, text=True, encoding="utf-8", check=False,
            cwd=tmp_path, env={**environment, "HOME": str(home), "PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        url = service.stderr.readline().split()[3]
        tagger = load(folder)
        (tmp_path / "projects.cfg").write_text(PROJECT.format(url=url), encoding="utf-8")
        subjects = "".join(f"<{label}>\tcolor {label}\n" for label in tagger.classes_)
        (tmp_path / "colors.tsv").write_text(subjects, encoding="utf-8")
        run("load-vocab", "--language", "en", "colors", "colors.tsv")
        shown = run("suggest", "colors", text="größer label0 label1")
        assert "True" in run("show-project", "colors")
    finally:
        service.terminate()
        service.wait(20)
        service.stderr.close()
    labels, chances = tagger.suggest("größer label0 label1", k=3)
    rows = [line.split("\t") for line in shown.splitlines()]
    assert [row[:2] for row in rows] == [[f"<{label}>", f"color {label}"] for label in labels[0]]
    assert [float(row[2]) for row in rows] == pytest.approx(chances[0].tolist(), abs=1e-3)
