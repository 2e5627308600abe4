"""What a release must fulfil: archives with everything that belongs in them and nothing else, and one version.

`python deploy/release.py dist/*` lists what the archives have, and what is wrong with them. `--tag v0.1.0` also
says whether this is the version to publish.
"""

from __future__ import annotations

import argparse
import re
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PACKAGES = ("circlet", "circlet_paper")
#: Folders of the repository that are in no archive: tests check results, which are large.
LEFT_OUT = ("tests", "experiments", "benchmarks", "results", ".github", ".ci")
LEAVINGS = ("__pycache__", ".pyc", ".DS_Store", ".so", ".dll", ".pyd")


def version() -> str:
    """The version that the sources have."""
    text = (SOURCE / "circlet" / "version.py").read_text(encoding="utf-8")
    (found,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return str(found)


def expected() -> set[str]:
    """The files of the packages, as a wheel calls them."""
    paths = (path for package in PACKAGES for path in (SOURCE / package).rglob("*") if path.is_file())
    return {path.relative_to(SOURCE).as_posix() for path in paths if "__pycache__" not in path.parts}


def contents(archive: Path) -> list[str]:
    """The files in a wheel, or in an sdist without its topmost folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return sorted(wheel.namelist())
    with tarfile.open(archive) as sdist:
        return sorted(member.name.partition("/")[2] for member in sdist if member.isfile())


def archive_problems(archive: Path) -> list[str]:
    """What is wrong with an archive."""
    names, wheel, number = contents(archive), archive.suffix == ".whl", version()
    wanted = expected() if wheel else {f"src/{name}" for name in expected()} | {"pyproject.toml", "README.md"}
    wanted.add(f"circlet-{number}.dist-info/licenses/LICENSE" if wheel else "LICENSE")
    found = [f"{name} is missing" for name in sorted(wanted - set(names))]
    for name in names:
        # Some packages of circlet have such names too, and stay.
        top = PurePosixPath(name).parts[0]
        if top in LEFT_OUT or any(each in name for each in LEAVINGS):
            found.append(f"{name} does not belong in it")
        elif wheel and top not in (*PACKAGES, f"circlet-{number}.dist-info"):
            found.append(f"{name} is outside of the packages")
    if not archive.name.startswith(f"circlet-{number}{'-' if wheel else '.tar'}"):
        found.append(f"its name is not that of version {number}")
    return [f"{archive.name}: {each}" for each in found]


def version_problems(tag: str | None, root: Path = ROOT) -> list[str]:
    """What disagrees about the version: the citation and, for a release, the tag and the list of changes."""
    number, found = version(), []
    cited = re.findall(r"^version: (.+)$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    if cited != [number]:
        found.append(f"CITATION.cff has version {', '.join(cited) or 'none'}; wanted {number}")
    if tag is None:
        return found
    if tag != f"v{number}":
        found.append(f"the tag is {tag}; wanted v{number}, as src/circlet/version.py says")
    if f"\n## [{number}]" not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        found.append(f"CHANGELOG.md has no section [{number}]")
    return found


def main() -> int:
    """List what archives have, and what is wrong with them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("archives", nargs="+", type=Path)
    parser.add_argument("--tag", help="the tag that is to be published, such as v0.1.0")
    given = parser.parse_args()
    problems = version_problems(given.tag)
    for archive in given.archives:
        folders = Counter("/".join(PurePosixPath(name).parts[:3][:-1]) or "." for name in contents(archive))
        print(f"{archive.name}, {archive.stat().st_size:,} bytes")
        for folder, count in sorted(folders.items()):
            print(f"  {count:4} {folder}")
        problems += archive_problems(archive)
    if {archive.suffix for archive in given.archives} != {".whl", ".gz"}:
        problems.append("wanted a wheel and an sdist")
    for each in problems:
        print(each, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
