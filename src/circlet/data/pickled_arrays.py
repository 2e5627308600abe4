"""NumPy arrays from Python 2 pickles, without letting a pickle run anything.

scikit-multilearn 0.0.1 stores its datasets this way. A pickle is a program: it names functions and has them
called. This unpickler knows the three names that make a NumPy array and replaces them with inert stand-ins, so
that not even NumPy runs at the request of the file. Any other name is an error. The arrays are then built here,
from a shape, a dtype from a short list, and exactly the right number of bytes.
"""

from __future__ import annotations

import bz2
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.checks import is_integer
from circlet.errors import DataError

DTYPES = {"i1": np.int8, "u1": np.uint8, "i4": np.int32, "i8": np.int64, "f4": np.float32, "f8": np.float64}
#: What a malformed pickle raises is not documented; these are the errors that its opcodes can lead to.
MALFORMED = (
    *(pickle.UnpicklingError, EOFError, OSError, ValueError, TypeError, LookupError, AttributeError),
    *(OverflowError, ImportError, MemoryError, Warning),
)


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read a bz2-compressed pickle of a dictionary from names to arrays."""
    try:
        with bz2.open(path) as stream, warnings.catch_warnings():
            warnings.simplefilter("error")  # an escape that Python only warns about is damage here
            content = _Arrays(stream, encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except MALFORMED as error:
        raise DataError(f"{path}: found no bz2-compressed pickle of arrays ({error}); wanted one") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: found a pickled {type(content).__name__}; wanted a dictionary of arrays")
    return {_word(name): _array(path, _word(name), value) for name, value in content.items()}


class _ArrayStandIn:
    """What NumPy's `_reconstruct` would return; the pickle then sets its state."""

    state: tuple[Any, ...] = ()

    def __setstate__(self, state: Any) -> None:
        self.state = tuple(state)


class _DTypeStandIn:
    """What `numpy.dtype(code)` would return, with the byte order from its state."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code, self.order = _word(code), "|"

    def __setstate__(self, state: Any) -> None:
        self.order = _word(state[1])


def _reconstruct(*_: Any) -> _ArrayStandIn:
    return _ArrayStandIn()


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _ArrayStandIn,
    ("numpy", "dtype"): _DTypeStandIn,
}


class _Arrays(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise DataError(
                f"found a pickle that wants {module}.{name}; wanted one with NumPy arrays only"
            ) from None

    def persistent_load(self, _: Any) -> Any:
        raise DataError("found a pickle that refers to something outside itself; wanted NumPy arrays")


def _array(path: Path, name: str, value: Any) -> npt.NDArray[Any]:
    wrong = DataError(f"{path}: found no plain array under {name!r}; wanted numbers of {', '.join(DTYPES)}")
    if not isinstance(value, _ArrayStandIn) or len(value.state) != 5:
        raise wrong
    _, shape, dtype, by_columns, content = value.state
    if not isinstance(dtype, _DTypeStandIn) or dtype.code not in DTYPES or dtype.order not in "<|":
        raise wrong
    if not isinstance(content, bytes) or not isinstance(shape, tuple):
        raise wrong
    if not all(is_integer(size, 0) for size in shape):
        raise wrong
    stored = np.dtype(DTYPES[dtype.code]).newbyteorder("<")
    if len(content) != math.prod(shape) * stored.itemsize:
        raise DataError(
            f"{path}: found {len(content)} bytes under {name!r}; "
            f"wanted {math.prod(shape) * stored.itemsize} for its shape {shape}"
        )
    return np.frombuffer(content, dtype=stored).reshape(shape, order="F" if by_columns else "C")


def _word(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
