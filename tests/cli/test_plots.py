from __future__ import annotations

import pytest

from circlet.cli import plots
from circlet.errors import OutputError, ParameterError

matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture
def figure():
    from matplotlib.figure import Figure

    return Figure(figsize=(1, 1))


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF"), ("a", b"\x89PNG")]
)
def test_the_name_says_the_format(tmp_path, figure, name, start, capsys):
    plots.check(tmp_path / name)
    plots.write(tmp_path / name, figure)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert f"{name} drawn" in capsys.readouterr().err.replace("\n", "")


def test_places_that_are_refused(tmp_path):
    plots.check(None)
    with pytest.raises(
        ParameterError, match=r"--plot: found a\.jpeg; wanted a name that ends in \.png, \.svg, \.pdf"
    ):
        plots.check(tmp_path / "a.jpeg")
    with pytest.raises(OutputError, match="--plot: found no folder"):
        plots.check(tmp_path / "new" / "a.png")
