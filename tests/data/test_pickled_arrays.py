"""Arrays out of Python-2 pickles: the real layout is read, and nothing else gets anywhere."""

from __future__ import annotations

import bz2
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circlet.data.fetch import read_arrays
from circlet.errors import DataError


def python2_pickle(arrays: dict[str, np.ndarray], order: str = "<") -> bytes:
    """Protocol 0 as Python 2 wrote it, the layout of scikit-multilearn's dumps."""
    body = b"(dp0\n"
    for name, array in arrays.items():
        code = array.dtype.str[1:]
        shape = b"".join(b"I%d\n" % size for size in array.shape)
        raw = "".join(f"\\x{byte:02x}" for byte in array.tobytes()).encode()
        body += (
            b"S'" + name.encode() + b"'\n"
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
            b"(I1\n(" + shape + b"tcnumpy\ndtype\n(S'" + code.encode() + b"'\nI0\nI1\ntR"
            b"(I3\nS'" + order.encode() + b"'\nNNNI-1\nI-1\nI0\ntb"
            b"I00\nS'" + raw + b"'\ntbs"
        )
    return body + b"."


def written(folder: Path, content: bytes) -> Path:
    path = folder / "a.dump.bz2"
    path.write_bytes(bz2.compress(content))
    return path


ARRAYS = {"X": np.array([[0.5, -2.0], [3.0, 0.0]]), "y": np.array([[1, 0, 1], [0, 0, 1]])}


def test_reads_what_python_2_wrote(tmp_path):
    content = python2_pickle(ARRAYS)
    found = read_arrays(written(tmp_path, content))
    assert set(found) == {"X", "y"}
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


class Evil:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    ("call", "name"), [(os.system, "system"), (eval, "eval"), (getattr, "getattr"), (np.load, "load")]
)
def test_a_malicious_pickle_is_refused_and_does_nothing(tmp_path, protocol, call, name):
    marker = tmp_path / "executed"
    argument = f"touch {marker}" if call is os.system else f"open({str(marker)!r}, 'w')"
    path = written(tmp_path, pickle.dumps({"X": Evil(call, argument)}, protocol=protocol))
    with pytest.raises(DataError, match=rf"a\.dump\.bz2: found a pickle that wants .*{name}"):
        read_arrays(path)
    assert not marker.exists()


def test_numpys_own_functions_are_not_called_either(tmp_path):
    # numpy would allocate this; a stand-in does not.
    content = b"(dS'X'\ncnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I1000000000000\ntS'b'\ntRs."
    with pytest.raises(DataError, match="found no plain array under 'X'"):
        read_arrays(written(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no bz2-compressed pickle"),
        (b"(l.", "found a pickled list; wanted a dictionary"),
        (b"(dS'X'\nI1\ns.", "found no plain array under 'X'"),
        (python2_pickle(ARRAYS, order=">"), "found no plain array under 'X'"),
        (python2_pickle({"X": np.array(["abc"])}), "found no plain array under 'X'"),
        (
            python2_pickle(ARRAYS).replace(b"I2\nI2\n", b"I2\nI3\n"),
            r"found 32 bytes under 'X'; wanted 48 for its shape \(2, 3\)",
        ),
        (python2_pickle(ARRAYS).replace(b"I2\nI2\n", b"I-2\nI-2\n"), "found no plain array under 'X'"),
        (b"P123\n.", "refers to something outside itself"),
    ],
)
def test_what_is_not_a_dictionary_of_plain_arrays(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read_arrays(written(tmp_path, content))


def test_not_bz2(tmp_path):
    path = tmp_path / "a.dump.bz2"
    path.write_bytes(b"plain")
    with pytest.raises(DataError, match="no bz2-compressed pickle"):
        read_arrays(path)


@settings(
    max_examples=300,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_damage_gives_arrays_or_a_data_error(tmp_path, data):
    content = bytearray(python2_pickle(ARRAYS))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert"])):
            case "flip":
                content[at] = data.draw(st.integers(0, 255))
            case "cut":
                del content[at : at + data.draw(st.integers(1, 20))]
            case "insert":
                content[at:at] = data.draw(st.binary(min_size=1, max_size=5))
        if not content:
            break
    try:
        found = read_arrays(written(tmp_path, bytes(content)))
    except DataError:
        return
    assert all(isinstance(array, np.ndarray) for array in found.values())
