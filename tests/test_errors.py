from __future__ import annotations

import pytest

from circlet import errors


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("ParameterError", ValueError),
        ("ShapeError", ValueError),
        ("DTypeError", TypeError),
        ("DataError", ValueError),
        ("FetchError", OSError),
        ("OutputError", OSError),
        ("MemoryLimitError", MemoryError),
        ("MissingExtraError", ImportError),
    ],
)
def test_each_is_also_what_a_python_programmer_would_catch(name, builtin):
    kind = getattr(errors, name)
    assert issubclass(kind, errors.CircletError)
    assert issubclass(kind, builtin)


def test_a_missing_extra_says_how_to_install_it():
    error = errors.MissingExtraError("matplotlib", extra="plot", purpose="drawing the picture")
    wanted = "drawing the picture needs matplotlib, which is not installed: pip install 'circlet[plot]'"
    assert str(error) == wanted


@pytest.mark.parametrize("kind", [errors.DataError, errors.OutputError, errors.FetchError])
def test_a_long_message_loses_its_middle(kind):
    message = f"file.txt:3: found {'x' * 2_000_000}; wanted text"
    shown = str(kind(message))
    assert len(shown) == errors.LONGEST
    assert shown.startswith("file.txt:3: found xxx")
    assert shown.endswith("xxx; wanted text")
    assert str(kind(message[: errors.LONGEST])) == message[: errors.LONGEST]


def test_a_message_is_one_line_that_a_terminal_shows_and_does_not_obey():
    assert str(errors.DataError("found a\nb; wanted  c")) == "found a b; wanted  c"
    assert str(errors.DataError("found \x1b[2J\t\u202e\ud800 größer")) == r"found \x1b[2J\t\u202e\ud800 größer"
    assert len(str(errors.DataError("\0" * 10_000))) == errors.LONGEST
