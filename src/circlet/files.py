"""Files: checked reading of lines, JSON and tensors; locks; and atomic writing, so that nobody reads half a file.

Compressed input may grow only by a limited factor: a hostile file of a megabyte can unpack to gigabytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import os
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal, cast

from circlet.errors import DataError, OutputError, ParameterError, bad

#: The suffix of gzipped files.
GZIPPED = ".gz"
#: Most levels of lists and objects in JSON, and most digits of an integer.
DEEPEST, LONGEST = 50, 300
#: Environment variable with the largest factor by which a file may grow, 100 by default; real data grows 20 times.
VARIABLE = "CIRCLET_UNPACK_RATIO"
#: Bytes that any file may unpack to; fewer for files of lines, since a line may take 100 times its size in memory.
FREE, FREE_LINES = 1 << 26, 1 << 20
_BLOCK = 1 << 16
MAX_LINE = 1 << 26  # bytes; a longer line means a damaged or hostile file, and would fill the memory
BOM = b"\xef\xbb\xbf"

#: Temporary names: a dot, the file's name, the id of the writing process, and optionally x and random characters.
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<process>[0-9]+)(\.x\w+)?\.part")


def read_bytes(path: Path, what: str = "file") -> bytes:
    """Read a file, unzipped if its name ends in `GZIPPED`; raise `DataError` if it cannot be read."""
    check_regular(path, what)
    try:
        return read_gzip(path) if path.suffix == GZIPPED else path.read_bytes()
    except (OSError, EOFError, MemoryError, zlib.error) as error:
        raise DataError(f"{path}: found no readable {what} ({reason_of(error)})") from error


def check_regular(path: Path, what: str = "file") -> int:
    """Return the size of a regular file; raise `DataError` for others, since opening a pipe or device may hang."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero character
        raise DataError(f"{path}: found no readable {what} ({reason_of(error)})") from error
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe, a socket or a device"
        raise DataError(f"{path}: found no readable {what} ({kind}); wanted a regular file")
    return found.st_size


def read_json(path: Path) -> Any:
    """Read a JSON file, which may be gzipped; raise `DataError` if it cannot be read.

    Non-finite numbers, text with half of a surrogate pair, and deeply nested values are errors too.
    """
    try:
        return parse_json(read_bytes(path, "JSON").decode())
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: found no readable JSON ({reason_of(error)})") from error


def parse_json(text: str) -> Any:
    """Parse JSON; raise `ValueError` or `RecursionError` for invalid values, as in `read_json`."""

    def refuse(constant: str) -> float:
        raise ValueError(f"{constant}; wanted finite numbers")

    def finite(digits: str) -> float:
        number = float(digits)
        return number if math.isfinite(number) else refuse(f"the number {digits[:40]}")

    def short(digits: str) -> int:
        if len(digits) > LONGEST:
            raise ValueError(f"an integer of {len(digits)} digits; wanted at most {LONGEST}")
        return int(digits)

    value = json.loads(text, parse_constant=refuse, parse_float=finite, parse_int=short)
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode()  # fails for half of a surrogate pair
    if text.count("[") + text.count("{") > DEEPEST and _is_deeper(value, DEEPEST):
        raise ValueError(f"more than {DEEPEST} levels of lists and objects")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _is_deeper(each, levels - 1) for each in inner if isinstance(each, (dict, list)))


def read_tensors(path: Path, library: Literal["numpy", "torch"]) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the tensors and metadata of a safetensors file; raise `DataError` if it cannot be read.

    The metadata of a gzipped file is not read.
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
        raise DataError(f"{path}: found no readable tensors ({reason_of(error)})") from error


def reason_of(error: Exception) -> str:
    """Return the message of an error, without the path in a system's error."""
    return str(getattr(error, "strerror", None) or error)


def sha256(path: Path) -> str:
    """Return the digest of a file's content."""
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def iter_lines(
    path: Path, *, start: int = 0, end: int | None = None, first: int = 1
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of `path`, including line ends, with their numbers from 1.

    An empty file, a zero byte (a binary file), a line longer than `MAX_LINE` and a damaged or truncated gzip
    stream raise `DataError`; a byte order mark is dropped.

    `start` and `end` select the lines between two byte positions of an uncompressed file; the first line starts at
    `start` and has the number `first`.
    """
    number, at = first - 1, start
    with explained(path), open_bytes(path) as stream:
        if start:
            stream.seek(start)
        while (end is None or at < end) and (line := stream.readline(MAX_LINE + 1)):
            at += len(line)
            if at == len(line) and line.startswith(BOM):
                line = line[len(BOM) :]
                if not line:
                    break
            number += 1
            if b"\0" in line:
                raise bad(path, number, "a zero byte (a binary file?)", "lines of text")
            if len(line) > MAX_LINE:
                raise bad(path, number, f"a line of more than {MAX_LINE} bytes", "shorter lines")
            yield number, line
    if not number:
        raise bad(path, None, "an empty file", "data")


def iter_text(
    path: Path,
    progress: Callable[[int], object] | None = None,
    *,
    start: int = 0,
    end: int | None = None,
    first: int = 1,
) -> Iterator[tuple[int, str]]:
    """Yield the lines of `iter_lines` decoded from UTF-8; `progress` gets the bytes of each line."""
    for number, line in iter_lines(path, start=start, end=end, first=first):
        if progress is not None:
            progress(len(line))
        yield number, decode(path, number, line)


def decode(path: Path | str, number: int, line: bytes | bytearray) -> str:
    """Decode a line; raise a `DataError` that names the byte if the line is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{line[error.start]:02x} at position {error.start + 1} of the line"
        raise bad(path, number, byte, "UTF-8 text") from error


def peek(path: Path, size: int = 1 << 16) -> bytes:
    """Return the first bytes of the (decompressed) content, without a byte order mark."""
    with explained(path), open_bytes(path) as stream:
        return stream.read(size).removeprefix(BOM)


def open_bytes(path: Path) -> IO[bytes]:
    """Open `path` for reading; gzip is recognized by its first two bytes, whatever the file's name."""
    refuse_pipe(path)
    stream = path.open("rb")
    magic = stream.read(2)
    stream.seek(0)
    if magic != b"\x1f\x8b":
        return stream
    stream.close()
    return open_gzip(path)


def plain_or_packed(folder: Path, name: str) -> Path | None:
    """Return the file of this name, or with `.gz` after it, in a folder; None if there is neither."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def refuse_pipe(path: Path) -> None:
    """Raise `DataError` for a pipe or a device, which cannot be read twice, or never ends."""
    # Checked before opening, since opening a pipe waits for a writer.
    if path.exists() and not path.is_file() and not path.is_dir():
        wanted = "a regular file (only `circlet predict` reads texts from pipes, and from standard input as -)"
        raise bad(path, None, "a pipe or device", wanted)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of the system and of the decompressor about `path` into a `DataError`."""
    try:
        yield
    except EOFError as error:
        raise bad(path, None, "a gzip file that ends too early", "a complete one") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise bad(path, None, f"a damaged gzip file ({error})", "an intact one") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def open_gzip(path: Path) -> IO[bytes]:
    """Open a gzip file to read lines from it."""
    # Lines take far longer to parse than to unpack, so the start is unpacked twice: a file that grows without
    # bound is refused before its first line is parsed.
    with (
        _Gunzip(path, path.open("rb"), FREE_LINES) as start,
        suppress(OSError, EOFError, zlib.error),  # reading on raises it again
    ):
        while start.size <= 2 * FREE_LINES and start.read(_BLOCK):
            pass
    # In a BufferedReader, because GzipFile.readline is a slow Python function.
    return io.BufferedReader(_Gunzip(path, path.open("rb"), FREE_LINES), _BLOCK)


def read_gzip(path: Path) -> bytes:
    """Return the content of a gzip file."""
    with io.BufferedReader(_Gunzip(path, path.open("rb"), FREE), _BLOCK) as stream:
        return stream.read()


def most_unpacked(packed: int, free: int = FREE) -> int:
    """Return how many bytes `packed` bytes of a file may unpack to."""
    return free + _ratio() * packed


def check_unpacked(path: Path, packed: int, unpacked: int, free: int = FREE) -> None:
    """Raise `DataError` if `packed` bytes of a file unpack to too many bytes, or claim to do so."""
    if unpacked > (most := most_unpacked(packed, free)):
        raise DataError(
            f"{path}: found {packed} bytes that unpack to {unpacked} or more; wanted at most {most}, which is "
            f"{_ratio()} times as many and {free} (if you trust it, set {VARIABLE} in the environment to more)"
        )


class _Gunzip(io.RawIOBase):
    """The content of a gzip file; its growth is checked during reading, before it takes memory or time."""

    def __init__(self, path: Path, packed: IO[bytes], free: int) -> None:
        self.path, self.packed, self.free, self.size = path, packed, free, 0
        self.unpacked = gzip.GzipFile(fileobj=packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.unpacked.readinto(buffer)
        self.size += count
        check_unpacked(self.path, self.packed.tell(), self.size, self.free)
        return count

    def close(self) -> None:
        self.unpacked.close()
        self.packed.close()
        super().close()


def _ratio() -> int:
    given = os.environ.get(VARIABLE, "100")
    if not (given.isdecimal() and given.isascii() and 1 <= len(given) <= 9):
        raise ParameterError(f"{VARIABLE}: found {given!r}; wanted a whole number of at most 9 digits")
    return int(given)


def prepare_folder(folder: Path) -> None:
    """Create `folder` if needed, and check, before long work, that a file can be written in it."""
    with _write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


def prepare_output(path: Path) -> None:
    """Check, before long work, that `output` can write `path`; create its folder if needed."""
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder")
    if not _is_special(path):
        prepare_folder(followed(path).parent)


@contextmanager
def output(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that a user has named, to write it atomically.

    A symbolic link stays, and its target is replaced. A device or a pipe cannot be replaced: if the body fails,
    its output so far stays there.
    """
    if _is_special(path):
        with _write_errors(path), path.open("wb") as stream:
            yield stream
        return
    with replacing(followed(path)) as temporary, temporary.open("wb") as stream:
        yield stream


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Open `path` for atomic writing; compressed if its name ends in `.gz`."""
    with output(path) as raw:
        if path.suffix != ".gz":
            yield raw
            return
        # The header has no name and no time, so that the same content gives the same bytes.
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
            yield cast(IO[bytes], packed)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the body succeeds, else remove it."""
    temporary = temporary_beside(path)
    if _is_special(path):
        raise OutputError(f"cannot replace {path}: found a device, pipe or socket; wanted a regular file")
    with _write_errors(path):
        try:
            yield temporary
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def followed(path: Path) -> Path:
    """Return the target of a symbolic link, whether it exists or not; return any other path unchanged."""
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OutputError(f"cannot write {path}: found a symbolic link that leads to itself")
    return target


def _is_special(path: Path) -> bool:
    """Whether `path`, after following links, exists and is neither a regular file nor a folder."""
    try:
        mode = path.stat().st_mode
    except OSError:  # it does not exist or is not accessible; writing reports the reason
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # The body may raise other errors, such as a download's. Errors of the system have a number, except NumPy's
        # for a full disk.
        if isinstance(error, OutputError) or (error.errno is None and type(error) is not OSError):
            raise
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def temporary_beside(path: Path) -> Path:
    """Return this process's temporary name for a file or folder until it is complete."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """Make a temporary folder beside `path`; if this process is killed, `remove_leftovers` removes it."""
    prefix = f".{path.name}.{os.getpid()}.x"
    with tempfile.TemporaryDirectory(prefix=prefix, suffix=".part", dir=path.parent) as scratch:
        yield Path(scratch)


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove temporary files of killed processes in a folder, or only those for one name."""
    for path in folder.glob(".*.part"):
        found = _TEMPORARY.fullmatch(path.name)
        if found is None or name not in (None, found["name"]) or _is_running(int(found["process"])):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with _write_errors(path):
                path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    if os.name == "nt":
        return True  # os.kill would end the process on Windows
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: Any) -> None:
    """Write `content` as JSON atomically; each innermost list stays on one line."""

    # json.dumps(indent=1) would put every number of a matrix on its own line.
    def pretty(value: Any, indent: str) -> str:
        inner = indent + " "
        if isinstance(value, dict) and value:
            items = [f"{inner}{json.dumps(str(key))}: {pretty(item, inner)}" for key, item in value.items()]
            return "{\n" + ",\n".join(items) + f"\n{indent}}}"
        if isinstance(value, (list, tuple)) and any(isinstance(item, (dict, list, tuple)) for item in value):
            return "[\n" + ",\n".join(inner + pretty(item, inner) for item in value) + f"\n{indent}]"
        return json.dumps(value, allow_nan=False, ensure_ascii=False)

    write_text(path, pretty(content, "") + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file atomically, with strings in its header.

    Tensors are either all NumPy arrays, or all contiguous tensors of torch, which is imported only for these.
    """
    import numpy as np
    from safetensors import SafetensorError, TensorSpec, serialize_file

    arrays: dict[str, np.ndarray] = {}
    described = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, np.ndarray):
            arrays[name] = array = np.ascontiguousarray(tensor, tensor.dtype.newbyteorder("<"))
            # NumPy has no bfloat16; ours is called like its only field.
            kind = array.dtype.names[0] if array.dtype.names else array.dtype.name
            try:
                described[name] = TensorSpec(
                    dtype=kind, shape=tensor.shape, data_ptr=array.ctypes.data, data_len=array.nbytes
                )
            except SafetensorError as error:
                raise DataError(f"found {name} in {tensor.dtype}; wanted a type that safetensors has") from error
    with replacing(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        # safetensors writes a temporary file that only the owner can read, and a killed process leaves it behind.
        # In a folder named like our temporary files, `remove_leftovers` can remove it.
        with scratch_beside(path) as scratch:
            written = scratch / path.name
            try:
                if len(arrays) == len(tensors):
                    serialize_file(described, written, metadata)
                else:
                    from safetensors.torch import save_file

                    save_file(dict(tensors), written, metadata)
            except SafetensorError as error:  # this is how it reports a full disk
                raise OutputError(f"cannot write {path}: {error}") from error
            written.chmod(mode)
            written.replace(temporary)


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
