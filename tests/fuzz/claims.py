"""Damage that knows a file's format: what it says about itself is replaced, and the rest is as it was.

A random flip of a bit rarely makes a file that says it has 2^62 rows. These do.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

#: What is written in place of a number or another value, as it stands in JSON.
TOKENS = [
    "0", "-1", "1", "2", "7", "3.5", "-0.0", "1e-320", "1e38", "1e300", "1e400", "-1e400", "NaN", "Infinity",
    "-Infinity", str(2**31), str(2**32 - 1), str(2**40), str(2**53 + 1), str(2**62), str(2**63), str(-(2**63)),
    "9" * 400, "9" * 5000, "true", "false", "null", '""', '"0"', '"\\ud800"', '"\\u0000"', '"a\\nb"', '"\\u202e"',
    "[]", "{}", "[1]", '["a", "b"]', '{"a": 1}', "[[[]]]", '"' + "long " * 20_000 + '"',
    "[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000,
]  # fmt: skip
#: The same for formats of plain text.
WORDS = [
    b"0", b"-1", b"1", b"nan", b"inf", b"1e400", b"1e-400", b"2147483647", b"2147483648", b"4294967296",
    b"4611686018427387904", b"9223372036854775808", b"9" * 40, b"9" * 5000, b"0x10", b"1_000", b"+3", b"1.5", b"",
    "１２".encode(), "٣".encode(), b"\xed\xa0\x80", b"\\ud800", b"\0", b"\r", b"\n", b"\t", b'"', b",", b":", b" ",
    b'"' * 999, b"[" * 100_000, b"__label__", b"<http://a>",
]  # fmt: skip
#: Types that an array may say it has.
TYPES = [
    "|O", "<f8", ">f4", "<f2", "<c8", "<i8", ">i4", "|u1", "|b1", "<U9999999", "|S4", "|V8", "<M8[ns]", "i4,f4",
]  # fmt: skip
_MARK = "\x00mark"
_OF_ARCHIVES = (zipfile.BadZipFile, zlib.error)


def claim(name: str, content: bytes, random: Random) -> bytes | None:
    """A file that claims something else; None if nothing is known about its format."""
    for suffix, change in _BY_SUFFIX.items():
        if name.endswith(suffix):
            try:
                return change(content, random)
            except (ValueError, LookupError, RecursionError, EOFError, OSError, struct.error, *_OF_ARCHIVES):
                return None  # damaged already, by an earlier mutation
    return None


def change_json(content: bytes, random: Random) -> bytes:
    """Another value, a missing, doubled or additional key, or another order, somewhere in a JSON document."""
    lines = content.splitlines(keepends=True)
    if len(lines) > 1 and lines[0].rstrip().endswith(b"}"):  # JSONL
        at = random.randrange(len(lines))
        lines[at] = change_json(lines[at], random) + b"\n"
        return b"".join(lines)
    document = json.loads(content)
    places = list(_places(document))
    if not places:
        return random.choice(TOKENS).encode()
    holder, key = random.choice(places)
    kind = random.choice(["value"] * 6 + ["missing", "doubled", "added", "near"])
    if kind == "missing":
        del holder[key]
    elif kind == "near" and type(holder[key]) in (int, float):
        holder[key] += random.choice([-1, 1, 0.5, holder[key]])
    elif kind == "added" and isinstance(holder, dict):
        holder[random.choice(["", "a", "format", "\ud800"])] = _MARK
    elif kind == "added":
        holder.insert(random.randrange(len(holder) + 1), random.choice(holder))
    elif kind == "doubled" and isinstance(holder, dict):
        holder[_MARK + _MARK] = holder[key]
        twice = json.dumps(key)
        return json.dumps(document).replace(json.dumps(_MARK + _MARK), twice).encode()
    else:
        holder[key] = _MARK
    return json.dumps(document).replace(json.dumps(_MARK), random.choice(TOKENS)).encode()


def change_text(content: bytes, random: Random) -> bytes:
    """Another number or word in a text."""
    found = list(re.finditer(rb"[0-9]+" if random.random() < 0.7 else rb"[^\s,:]+", content))
    if not found:
        return random.choice(WORDS)
    place = random.choice(found)
    return content[: place.start()] + random.choice(WORDS) + content[place.end() :]


def change_safetensors(content: bytes, random: Random) -> bytes:
    """Another header or another length of it, or another number in a tensor."""
    (length,) = struct.unpack_from("<Q", content)
    header, body = content[8 : 8 + length], content[8 + length :]
    kind = random.choice(["header", "header", "length", "number", "number"])
    if kind == "length":
        other = random.choice([0, 1, length - 1, length + 8, 2**31, 2**62, 2**64 - 1])
        return struct.pack("<Q", other) + header + body
    if kind == "header":
        header = change_json(header, random)
        return struct.pack("<Q", len(header)) + header + body
    return content[: 8 + length] + change_number(body, random)


def change_number(body: bytes, random: Random) -> bytes:
    """Another number among those of an array."""
    word = random.choice([struct.pack("<f", value) for value in (np.nan, np.inf, -1e38, 1e-40, 0.5)])
    word = random.choice([word, struct.pack("<i", random.choice([-1, 2**31 - 1, 7, 1])), b"\0" * 4, b"\xff" * 8])
    at = random.randrange(max(1, len(body) // len(word))) * len(word)
    return body[:at] + word + body[at + len(word) :]


def change_npy(content: bytes, random: Random) -> bytes:
    """Another shape, type or order in the header of an array, or another number in it."""
    (length,) = struct.unpack_from("<H", content, 8)
    header, body = content[10 : 10 + length].decode("latin-1"), content[10 + length :]
    kind = random.choice(["number", "size", "size", "type", "order", "length"])
    if kind == "number":
        return content[: 10 + length] + change_number(body, random)
    if kind == "length":
        return content[:8] + struct.pack("<H", random.choice([0, length + 2, 65535])) + content[10:]
    if kind == "order":
        header = header.replace("False", random.choice(["True", "None", "__import__('os')", "[" * 500]))
    elif kind == "type":
        header = re.sub(r"'descr': '[^']*'", f"'descr': '{random.choice(TYPES)}'", header)
    else:
        size = random.choice(["-1", str(2**31), str(2**62), str(10**30), "0", "1", "None", "1.5", "(2,)", "7,3"])
        header = re.sub(r"\(([0-9]+)", f"({size}", header, count=1)
    return content[:8] + struct.pack("<H", min(len(header), 65535)) + header.encode("latin-1") + body


def change_npz(content: bytes, random: Random) -> bytes:
    """An archive with a changed, missing, doubled or foreign member."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    chosen = random.choice(sorted(members))
    kind = random.choice(["change"] * 6 + ["missing", "exchange", "doubled", "bomb", "stored"])
    if kind == "change":
        members[chosen] = change_npy(members[chosen], random)
    elif kind == "missing":
        del members[chosen]
    elif kind == "exchange":
        members[chosen] = members[random.choice(sorted(members))]
    elif kind == "bomb":
        members[chosen] = members[chosen][:128] + bytes(1 << 27)
    out = io.BytesIO()
    how = zipfile.ZIP_STORED if kind == "stored" else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(out, "w", how, compresslevel=1) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    found = out.getvalue()
    # Two entries of one name; zipfile would warn about them.
    return found.replace(b"indptr.npy", b"format.npy") if kind == "doubled" else found


def change_gzip(content: bytes, random: Random) -> bytes:
    """A compressed file whose content claims something else."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
        inner = stream.read(1 << 20)  # it may be a bomb already
    return gzip.compress((change_json if inner[:1] in b"{[" and inner else change_text)(inner, random), mtime=0)


def _places(document: Any) -> Any:
    """Every value of a JSON document, by what holds it and its key."""
    keys: Any = range(len(document)) if isinstance(document, list) else ()
    if isinstance(document, dict):
        keys = list(document)
    for key in keys:
        yield document, key
        yield from _places(document[key])


_BY_SUFFIX: dict[str, Callable[[bytes, Random], bytes]] = {
    ".gz": change_gzip,
    ".json": change_json,
    ".jsonl": change_json,
    ".safetensors": change_safetensors,
    ".npy": change_npy,
    ".npz": change_npz,
    "": change_text,
}
