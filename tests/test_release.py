"""A release has what it needs: `deploy/release.py` says so, and a wheel that was installed works."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import circlet as package

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "deploy/release.py"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="not a source checkout")


@pytest.fixture(scope="module")
def release(script):
    return script("deploy/release.py")


def a_wheel(path: Path, names) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return path


def an_sdist(path: Path, names) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(f"circlet/{name}")
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
    return path


def test_version(release, tmp_path):
    number = release.version()
    assert number == package.__version__
    assert release.version_problems(None) == []
    wanted = f"the tag is v99.0; wanted v{number}, as src/circlet/version.py says"
    assert wanted in release.version_problems("v99.0")
    (tmp_path / "CITATION.cff").write_text("version: 9\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    assert release.version_problems(f"v{number}", tmp_path) == [
        f"CITATION.cff has version 9; wanted {number}",
        f"CHANGELOG.md has no section [{number}]",
    ]
    (tmp_path / "CITATION.cff").write_text(f"version: {number}\n")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{number}] - today\n")
    assert release.version_problems(f"v{number}", tmp_path) == []


class TestArchives:
    def test_complete_ones(self, release, tmp_path):
        number, own = release.version(), release.expected()
        some = (
            "circlet/py.typed",
            "circlet/serve/page/index.html",
            "circlet/cli/train.py",
            "circlet_paper/table.py",
        )
        assert {*some} <= own
        info = f"circlet-{number}.dist-info"
        wheel = a_wheel(tmp_path / f"circlet-{number}-py3-none-any.whl", [*own, f"{info}/licenses/LICENSE"])
        sources = [f"src/{name}" for name in own]
        sdist = an_sdist(
            tmp_path / f"circlet-{number}.tar.gz", [*sources, "LICENSE", "README.md", "pyproject.toml"]
        )
        assert release.archive_problems(wheel) == []
        assert release.archive_problems(sdist) == []

    def test_what_is_wrong_is_named(self, release, tmp_path):
        number = release.version()
        own = release.expected() - {"circlet/serve/page/app.js"}
        strange = ["tests/conftest.py", "circlet/__pycache__/a.pyc", "other/thing.py"]
        wheel = a_wheel(tmp_path / f"circlet-{number}-py3-none-any.whl", [*own, *strange])
        assert [each.partition(": ")[2] for each in release.archive_problems(wheel)] == [
            f"circlet-{number}.dist-info/licenses/LICENSE is missing",
            "circlet/serve/page/app.js is missing",
            "circlet/__pycache__/a.pyc does not belong in it",
            "other/thing.py is outside of the packages",
            "tests/conftest.py does not belong in it",
        ]
        sdist = an_sdist(tmp_path / "circlet-99.tar.gz", ["experiments/results/table.json"])
        found = release.archive_problems(sdist)
        assert "circlet-99.tar.gz: experiments/results/table.json does not belong in it" in found
        assert f"circlet-99.tar.gz: its name is not that of version {number}" in found
        assert "circlet-99.tar.gz: LICENSE is missing" in found

    def test_the_command(self, process, tmp_path):
        wheel = a_wheel(tmp_path / "circlet-99-py3-none-any.whl", ["circlet/a.py"])
        finished = process(sys.executable, str(SCRIPT), str(wheel), "--tag", "v1")
        assert finished.returncode == 1
        assert "the tag is v1" in finished.stderr
        assert "wanted a wheel and an sdist" in finished.stderr
        assert "   1 circlet" in finished.stdout


def finished(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command away from the sources, which it must not find."""
    alone = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env={**alone, "HOME": str(folder), "USERPROFILE": str(folder), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def ran(*words: object, folder: Path) -> str:
    done = finished(*words, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", folder, ROOT)
    built = finished(*pip, folder=folder)
    if built.returncode and "No matching distribution found for hatchling" in built.stderr:
        pytest.skip("needs hatchling, which pip cannot reach from here")
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture
def fresh(tmp_path) -> Path:
    """A folder with a virtual environment that has only pip."""
    ran(sys.executable, "-m", "venv", tmp_path / "venv", folder=tmp_path)
    return tmp_path


def installed(fresh: Path, what: str) -> Path:
    """Install something in the environment; its `circlet`."""
    programs = fresh / "venv" / ("Scripts" if os.name == "nt" else "bin")
    pip = (programs / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt")
    done = finished(*pip, what, folder=fresh)
    if "No matching distribution" in done.stderr:
        pytest.skip(f"pip cannot reach what {what} needs from here")
    assert done.returncode == 0, done.stderr
    return programs / "circlet"


@pytest.mark.slow
def test_installed_without_extras_and_for_training(wheel, fresh, release):
    assert release.archive_problems(wheel) == []
    circlet = installed(fresh, str(wheel))
    assert "Usage" in ran(circlet, "--help", folder=fresh)
    assert "eurlex-4k" in ran(circlet, "datasets", "list", folder=fresh)
    assert ran(circlet, "--version", folder=fresh).strip() == f"circlet {package.__version__}"
    installed(fresh, f"{wheel}[train]")
    assert "P@1" in ran(circlet, "demo", folder=fresh)
