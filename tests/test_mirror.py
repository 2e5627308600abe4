"""Tests mirror the package: `tests/<package>/test_<module>.py` tests `src/circlet/<package>/<module>.py`.

`tests/<package>/test_<package>.py` tests what a package's own `__init__.py` does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "circlet"

#: Modules without a file of tests, and why.
WITHOUT_TWIN = {
    "__main__.py": "a call; cli/test_cli.py runs it",
    "version.py": "a number",
    "annif/__main__.py": "a call; annif/test_in_annif.py runs it",
    "algebra/_check.py": "algebra/test_common.py reads its messages, for both algebras",
    "experiments/baselines/plan.py": "numbers and names; experiments/baselines/test_baselines.py shows them",
    "experiments/baselines/verdicts.py": "verdicts; experiments/baselines/test_baselines.py reads them",
    "experiments/codebook_panels.py": "drawings; experiments/test_codebooks.py makes them",
    "experiments/published.py": "numbers; experiments/test_table.py and test_results.py show them",
    "experiments/recipes.py": "names; experiments/test_table.py trains by them",
    "experiments/table_panels.py": "drawings; experiments/test_table.py makes them",
    "experiments/theory_claims.py": "verdicts; experiments/test_theory.py reads them",
    "experiments/theory_measures.py": "measures; experiments/test_theory.py takes them",
    "experiments/theory_panels.py": "drawings; experiments/test_theory.py makes them",
    "serve/feedback.py": "names; data/test_feedback.py tests what they stand for",
    "serve/limits.py": "numbers; serve/test_api.py and test_guard.py set others",
    "serve/schemas.py": "descriptions; serve/test_api.py and test_teaching.py send what they refuse",
}
#: Tests of more than one module.
ACROSS_MODULES = {
    "algebra/test_common.py",
    "annif/test_in_annif.py",
    "annif/test_page.py",
    "cli/test_encoders.py",
    "cli/test_without_training.py",
    "codebooks/test_contributed.py",
    "data/test_damage.py",
    "estimator/test_reading.py",
    "estimator/test_search.py",
    "experiments/test_results.py",
    "fuzz/test_fuzz.py",
    "folder/test_beside_others.py",
    "folder/test_crashes.py",
    "folder/test_hostile.py",
    "model/test_defaults.py",
    "model/test_reading.py",
    "model/test_saved_by_0_1_0.py",
    "model/test_stores.py",
    "serve/page/test_files.py",
    "serve/page/test_modules.py",
    "serve/page/test_sources.py",
    "serve/page/test_states.py",
    "serve/page/test_teaching.py",
    "serve/page/test_typing.py",
    "serve/test_fuzzed.py",
    "serve/test_with_annif.py",
    "training/test_joining.py",
    "test_commands.py",
    "test_docs.py",
    "test_guides.py",
    "test_imports.py",
    "test_site.py",
    "test_mirror.py",
    "test_notebooks.py",
    "test_peers.py",
    "test_readme.py",
    "test_release.py",
    "test_security.py",
    "test_threads.py",
}


def modules() -> list[str]:
    found = (path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
    return sorted(path.as_posix() for path in found if path.name != "__init__.py")


def files_of_tests() -> list[str]:
    return sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))


def twin(module: str) -> str:
    path = Path(module)
    return path.with_name(f"test_{path.name}").as_posix()


def test_there_is_something_to_compare():
    assert "codebooks/spectral.py" in modules()
    assert "codebooks/test_spectral.py" in files_of_tests()


@pytest.mark.parametrize("module", modules())
def test_every_module_has_tests_or_a_reason(module):
    tested = (TESTS / twin(module)).exists()
    assert tested != (module in WITHOUT_TWIN), f"wanted either tests/{twin(module)} or a reason in WITHOUT_TWIN"


def test_every_reason_is_for_a_module():
    assert set(WITHOUT_TWIN) <= set(modules())


@pytest.mark.parametrize("file", files_of_tests())
def test_every_file_of_tests_has_a_module(file):
    path = Path(file)
    package = SOURCE / path.parent
    of_module = (package / path.name.removeprefix("test_")).exists()
    of_package = path.stem == f"test_{package.name}" and (package / "__init__.py").exists()
    assert of_module or of_package or file in ACROSS_MODULES, f"found tests/{file}, but no module of that name"
