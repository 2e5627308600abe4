"""JSON and tensors on disk: read with checks, locked, and written so that a reader never sees half a file."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal

from circlet.errors import DataError, OutputError
from circlet.unpacking import read_gzip

#: What the names of gzipped files end with.
GZIPPED = ".gz"
#: Levels of lists and objects that JSON may have, and digits of an integer in it.
DEEPEST, LONGEST = 50, 300
#: Temporary names: a dot, the file's name, the process that writes it, and maybe something random after an x.
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<process>[0-9]+)(\.x\w+)?\.part")


def prepare_folder(folder: Path) -> None:
    """Create `folder` if needed, and check that a file can be written in it.

    Called before long work starts, so that the work does not fail when its result is written.
    """
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the body succeeds, else remove it."""
    temporary = temporary_beside(path)
    if _is_special(path):
        raise OutputError(f"cannot replace {path}: found a device, pipe or socket; wanted a regular file")
    with _explained(path):
        try:
            yield temporary
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def temporary_beside(path: Path) -> Path:
    """The name that this process gives to a file or folder until it is complete."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path`; if this process is killed, `remove_leftovers` finds it."""
    prefix = f".{path.name}.{os.getpid()}.x"
    with tempfile.TemporaryDirectory(prefix=prefix, suffix=".part", dir=path.parent) as scratch:
        yield Path(scratch)


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes were writing in a folder, or under one name in it."""
    for path in folder.glob(".*.part"):
        found = _TEMPORARY.fullmatch(path.name)
        if found is None or name not in (None, found["name"]) or _is_running(int(found["process"])):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with _explained(path):
                path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    if os.name == "nt":
        return True  # the question itself would end the process there
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def output(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that a user has named, to write it completely or not at all.

    A symbolic link stays, and the file that it leads to is replaced. A device or a pipe is written to and can't be
    replaced: what has been written stays there if the body fails.
    """
    if _is_special(path):
        with _explained(path), path.open("wb") as stream:
            yield stream
        return
    with replacing(followed(path)) as temporary, temporary.open("wb") as stream:
        yield stream


def prepare_output(path: Path) -> None:
    """Check that `output` can write `path`, before long work starts; its folder is made if needed."""
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder")
    if not _is_special(path):
        prepare_folder(followed(path).parent)


def followed(path: Path) -> Path:
    """The file that a symbolic link leads to, whether it exists or not; any other path itself."""
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OutputError(f"cannot write {path}: found a symbolic link that leads to itself")
    return target


def _is_special(path: Path) -> bool:
    """Whether there is something, at the end of symbolic links, that is neither a regular file nor a folder."""
    try:
        mode = path.stat().st_mode
    except OSError:  # there is nothing, or nothing that can be looked at; writing says what is wrong
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, completely or not at all."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: Any) -> None:
    """Write `content` as JSON, completely or not at all; each innermost list stays on one line."""
    write_text(path, _pretty(content) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file, completely or not at all.

    Parameters
    ----------
    path : Path
    tensors : mapping of str to ndarray, or of str to torch.Tensor
        Contiguous, all of one kind; torch is imported only for its own tensors.
    metadata : dict, optional
        Strings to store in the file's header.
    """
    import numpy as np
    from safetensors import SafetensorError

    of_numpy = all(isinstance(tensor, np.ndarray) for tensor in tensors.values())
    library: Any = import_module(f"safetensors.{'numpy' if of_numpy else 'torch'}")
    with replacing(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        # safetensors writes its own temporary file, readable only by its owner, and a killed process leaves it
        # behind. In a folder that is named like our own temporary files, it can be found and removed.
        with scratch_beside(path) as scratch:
            written = scratch / path.name
            try:
                library.save_file(dict(tensors), written, metadata=metadata)
            except SafetensorError as error:  # this is how it reports a full disk
                raise OutputError(f"cannot write {path}: {error}") from error
            written.chmod(mode)
            written.replace(temporary)


def write_gzip(path: Path, content: bytes) -> None:
    """Write `content` gzipped, completely or not at all; the name should end in `GZIPPED`."""
    write_bytes(path, gzip.compress(content, mtime=0))


def check_regular(path: Path, what: str = "file") -> int:
    """The size of a regular file; a `DataError` for anything else, since opening a pipe or a device may hang."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:  # the second: a name with a zero character
        raise DataError(f"{path}: found no readable {what} ({_reason(error)})") from error
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe, a socket or a device"
        raise DataError(f"{path}: found no readable {what} ({kind}); wanted a regular file")
    return found.st_size


def read_bytes(path: Path, what: str = "file") -> bytes:
    """The content of a file, unzipped if its name ends in `GZIPPED`; a `DataError` names what is wrong with it."""
    check_regular(path, what)
    try:
        return read_gzip(path) if path.suffix == GZIPPED else path.read_bytes()
    except (OSError, EOFError, MemoryError, zlib.error) as error:
        raise DataError(f"{path}: found no readable {what} ({_reason(error)})") from error


def read_json(path: Path) -> Any:
    """Read a JSON file, which may be gzipped; a `DataError` names what is wrong with it.

    Numbers are finite, text has no half characters, and nothing is nested so deeply that handling it would fail.
    """
    try:
        return parse_json(read_bytes(path, "JSON").decode())
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: found no readable JSON ({_reason(error)})") from error


def parse_json(text: str) -> Any:
    """The value that JSON describes; `ValueError` or `RecursionError` for what `read_json` refuses."""
    value = json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_short)
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode()  # fails for half of a surrogate pair
    if text.count("[") + text.count("{") > DEEPEST and _is_deeper(value, DEEPEST):
        raise ValueError(f"more than {DEEPEST} levels of lists and objects")
    return value


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant}; wanted finite numbers")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:40]}; wanted one that is finite in double precision")
    return number


def _short(digits: str) -> int:
    if len(digits) > LONGEST:
        raise ValueError(f"an integer of {len(digits)} digits; wanted at most {LONGEST}")
    return int(digits)


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _is_deeper(each, levels - 1) for each in inner if isinstance(each, (dict, list)))


def read_tensors(path: Path, library: Literal["numpy", "torch"]) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the tensors of a safetensors file, and its metadata; a `DataError` names what is wrong with it.

    The file may be gzipped; then its metadata is not read.
    """
    from safetensors import SafetensorError, safe_open

    check_regular(path, "tensors")
    try:
        if path.suffix == GZIPPED:
            return import_module(f"safetensors.{library}").load(read_bytes(path)), {}
        with safe_open(path, framework="np" if library == "numpy" else "pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 — not a mapping
            return tensors, dict(stored.metadata() or {})
    # The last three: types that NumPy does not have, and shapes that do not fit into memory.
    except (OSError, SafetensorError, TypeError, AttributeError, MemoryError) as error:
        raise DataError(f"{path}: found no readable tensors ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    # The system's messages would repeat the path.
    return str(getattr(error, "strerror", None) or error)


def sha256(path: Path) -> str:
    """The digest of a file's content."""
    with path.open("rb") as stream:
        return sha256_of(stream)


def sha256_of(stream: IO[bytes]) -> str:
    """The digest of what is left to read of an open file."""
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _pretty(value: Any, indent: str = "") -> str:
    # json.dumps(indent=1) would put every number of a matrix on its own line.
    inner = indent + " "
    if isinstance(value, dict) and value:
        items = [f"{inner}{json.dumps(str(key))}: {_pretty(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, (list, tuple)) and any(isinstance(item, (dict, list, tuple)) for item in value):
        return "[\n" + ",\n".join(inner + _pretty(item, inner) for item in value) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # The body may raise other kinds, such as a download's errors. The system's have a number, unless NumPy
        # finds the disk full.
        if isinstance(error, OutputError) or (error.errno is None and type(error) is not OSError):
            raise
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


if sys.platform == "win32":
    import msvcrt

    def lock(file: int) -> None:
        """Lock an open file; `BlockingIOError` or `PermissionError` if another process or handle has locked it."""
        place = os.lseek(file, 0, os.SEEK_CUR)
        os.lseek(file, 1 << 40, os.SEEK_SET)  # behind all that is ever written: nobody else can read a locked byte
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, place, os.SEEK_SET)
else:
    import fcntl

    def lock(file: int) -> None:
        """Lock an open file; `BlockingIOError` or `PermissionError` if another process or handle has locked it."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
