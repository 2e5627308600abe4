"""One entry point for all formats: `load_dataset` recognizes the format of a file or folder.

Labels that are URIs get readable names from a vocabulary, which may be gzipped:

- `.tsv`, `.txt`, as Annif's subjects: a URI, with or without angle brackets, a tab, and its name on each line.
  Further columns, such as a notation, are ignored.
- `.ttl`, `.nt`, `.rdf`, `.xml`: SKOS in RDF; the name is `skos:prefLabel`. Reading it needs rdflib.
"""

from __future__ import annotations

import difflib
import logging
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from circlet.checks import is_integer, require
from circlet.data import catalog, matrices, records
from circlet.data.dataset import Dataset, Split, check_label, check_label_names, label_fault, widen
from circlet.data.records import (
    PARQUET_MAGIC,
    TEXT_SUFFIX,
    Columns,
    Record,
    header_delimiter,
    is_annif,
    text_files,
)
from circlet.errors import CircletError, DataError, ParameterError, bad, shown
from circlet.files import iter_text, peek, plain_or_packed, read_gzip

logger = logging.getLogger(__name__)

ACCEPTED = (
    "a dataset's name; a folder with X.trn.npz and Y.trn.npz (or folders X.trn and Y.trn with their arrays, read "
    "from the disk as needed), with trn_X_Xf.txt and trn_X_Y.txt, with train.* and test.* files, "
    "with a data file and its *_trSplit.txt and *_tstSplit.txt, or with plain texts (.txt) and their labels "
    "beside them (.tsv or .key); or files: the Extreme Classification Repository's text, svmlight, JSONL, CSV, "
    "TSV, fastText, Annif TSV or Parquet"
)

FORMAT_NAMES = {
    "xmc": "Extreme Classification Repository text",
    "svmlight": "svmlight multilabel text",
    "jsonl": "JSONL text",
    "csv": "CSV text",
    "tsv": "TSV text",
    "fasttext": "fastText lines",
    "annif": "Annif short-text TSV",
    "parquet": "Parquet",
    "plain": "plain text, a document per file",
}
_EXTENSIONS = r"\.(txt|svm|svmlight|libsvm|jsonl|json|csv|tsv|ft|fasttext|parquet)(\.gz)?"
_TRAIN = re.compile(rf"(?:.*[._-])?(?:train|trn){_EXTENSIONS}", re.IGNORECASE)
_TEST = re.compile(rf"(?:.*[._-])?(?:test|tst){_EXTENSIONS}", re.IGNORECASE)
_SPLIT_FILE = re.compile(r".*_(tr|tst)Split\.txt(\.gz)?")

_SVM_ROW = re.compile(
    rb"(?:[0-9]+(?:,[0-9]+)*)?(?:[ \t]+[0-9]+:\S+)*[ \t\r]*|[0-9]+:\S+(?:[ \t]+[0-9]+:\S+)*[ \t\r]*"
)


class UnrecognizedError(DataError):
    """No such file, folder or dataset, or a file in an unknown format."""


@dataclass(frozen=True)
class _Parts:
    """The splits that the reader of a layout returns, before label names and raw texts are added."""

    format: str
    train: Split
    test: Split | None
    names: list[str] | None = None


def load_dataset(
    name_or_path: str | Path | Sequence[str | Path],
    *,
    text_column: str = "text",
    label_column: str = "labels",
    label_separator: str | None = None,
    split: int = 0,
    ids: bool = False,
    names: str | Path | None = None,
    names_language: str | None = None,
) -> Dataset:
    """Read a dataset by path or by name in the catalog, or several files with texts as one dataset.

    The format is recognized from the content, recorded in the result's `format` and logged. A lone file is
    all training data. Beside matrices, `labels.txt` (one name per line) or `labels.tsv` (identifier, tab, name)
    names the labels, and `train_raw_texts.txt` and `test_raw_texts.txt` hold the documents, one per line; each
    file name may end in `.gz`. A folder of plain texts has their labels beside them; see `circlet.data.records`.
    Malformed data raises a `DataError`, which names the file, the line, what was found and what was wanted.

    Parameters
    ----------
    name_or_path : str or Path, or several of them
        A file, a folder, or a name that `circlet datasets list` shows. If there are several, each is a file or a
        folder of plain texts, and all documents are training data.
    text_column : str
        The column with the texts in CSV, TSV and Parquet files, and the key in JSONL files.
    label_column : str
        The column and key with the labels.
    label_separator : str, optional
        The separator between labels in CSV and TSV files, or `[]` for lists such as ``['a', 'b']``. By default it
        is guessed from the first rows, or `;` if they are not conclusive; the result's `format` names it.
    split : int
        Which column of the Repository's split files to use.
    ids : bool
        Read the documents' ids: the column `id` of CSV and TSV files, or that key of JSONL files.
    names : str or Path, optional
        A vocabulary with names for labels that are URIs; see the module.
    names_language : str, optional
        The language of these names, if the vocabulary has several.
    """
    with_ids = ids and "id" not in (text_column, label_column)
    columns = Columns(text_column, label_column, label_separator, "id" if with_ids else None)
    if not is_integer(split, 0):
        raise ParameterError(f"found split {split!r}; wanted an integer >= 0")
    several = [name_or_path] if isinstance(name_or_path, (str, Path)) else list(name_or_path)
    if not several:
        raise ParameterError("found no files to read; wanted at least one")
    paths = [_locate(each) for each in several]
    path = paths[0]
    name = path.name.removesuffix(".gz") or path.resolve().name
    if path.is_file():
        name = Path(name).stem
    if len(paths) > 1:
        found, name = _read_several(paths, columns), f"{name} and {len(paths) - 1} more"
    elif path.is_dir():
        found = _with_companions(path, _read_folder(path, columns, split))
    else:
        found = _read_files(path, None, columns)
    dataset = Dataset(name, found.train, found.test, found.names, found.format, path)
    if names is not None:
        dataset = rename_labels(dataset, read_names(names, names_language), names)
    logger.info("%s: recognized %s", path, dataset.format)
    return dataset


def find_text_file(name_or_path: str | Path, columns: Columns) -> tuple[Path, str] | None:
    """Find the file or folder with the documents to tag, which can then be read one at a time.

    Returns the file itself, a folder's test file (else its train file), or a folder of plain texts (its subfolder
    `test`, if it has `train` and `test`); and its format, one of `records.FORMATS`. None if there are no texts.
    """
    path = _locate(name_or_path)
    if path.is_dir():
        layout, names = _layout(path)
        if layout not in ("pair", "texts"):
            return None
        if layout == "texts":
            return path, "plain"
        train, test = _find_pair(path, names)
        path = test or train
    kind = _kind_of(path, columns)
    return (path, kind) if kind in records.FORMATS else None


def path_exists(path: Path) -> bool:
    """Whether `path` exists; False for a name that is too long for a file, such as a text."""
    try:
        return path.exists()
    except OSError:
        return False


def _locate(name_or_path: str | Path) -> Path:
    """Return the file or folder at this path, or the folder of the dataset with this name."""
    path, name = Path(name_or_path), str(name_or_path)
    if path_exists(path):
        return path
    if name not in catalog.ENTRIES:
        wanted = "wanted data that `circlet train --help` describes, or a name from `circlet datasets list`"
        if near := difflib.get_close_matches(name.lower(), catalog.ENTRIES, n=1):
            wanted = f"did you mean {near[0]}?"
        raise UnrecognizedError(f"found no file, folder or dataset called {shown(name)}; {wanted}")
    return catalog.locate(name)


def _read_several(paths: list[Path], columns: Columns) -> _Parts:
    """Read files with texts, or folders of plain texts, one after the other."""
    kinds = [_kind_of(path, columns) for path in paths]
    for path, kind in zip(paths, kinds, strict=True):
        if kind not in records.FORMATS:
            raise bad(path, None, FORMAT_NAMES.get(kind, kind), "only files with texts, if there are several")
    all_of_them = (records.iter_records(path, kind, columns) for path, kind in zip(paths, kinds, strict=True))
    train, _, names = read_splits(chain.from_iterable(all_of_them))
    words = ", ".join(FORMAT_NAMES[kind] for kind in dict.fromkeys(kinds))
    return _Parts(f"{words}; {len(paths)} files", train, None, names)


def _kind_of(path: Path, columns: Columns) -> str:
    """Return the format of a file, "plain" for a folder of plain texts, or "a folder" for any other folder."""
    if not path.is_dir():
        return recognize(path, columns)
    return "plain" if _layout(path)[0] == "texts" else "a folder"


def recognize(path: Path | str, columns: Columns | None = None) -> str:
    """Recognize the format of a file from its first lines; return a key of `FORMAT_NAMES`."""
    path, columns = Path(path), columns or Columns()
    start = peek(path)
    if not start.strip():
        raise bad(path, None, "an empty file", "data")
    if start.startswith((b"PK\x03\x04", b"\x93NUMPY")):
        raise bad(path, None, "a lone matrix", "the folder with X.trn.npz and Y.trn.npz")
    if start.startswith(PARQUET_MAGIC):
        return "parquet"
    if b"\0" in start:
        raise bad(path, None, "a binary file", ACCEPTED)
    # The last line may be cut off, unless it is the only one.
    lines = [line for line in start.split(b"\n") if line.strip()][:100]
    complete = lines[:-1] or lines
    if lines[0].lstrip().startswith(b"{"):
        return "jsonl"
    if re.fullmatch(rb"\s*[0-9]+\s+[0-9]+\s+[0-9]+\s*", lines[0]):
        return "xmc"
    if any(line.lstrip().startswith(b"__label__") for line in lines):
        return "fasttext"
    if all(line.startswith(b"#") or _SVM_ROW.fullmatch(line) for line in complete[:3]):
        return "svmlight"
    return _recognize_table(path, start, columns)


def _recognize_table(path: Path, start: bytes, columns: Columns) -> str:
    number, first = next(((at, line) for at, line in iter_text(path) if not line.isspace()), (1, ""))
    if mark := header_delimiter(first, columns.text):
        return "tsv" if mark == "\t" else "csv"
    if is_annif(first):
        return "annif"
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    kind = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv"}.get(suffix)
    if kind is None and re.match(rb"(?:\s*[0-9,]+)?\s+[0-9]+:", start):
        kind = "svmlight"  # its reader reports what is wrong with the row
    if kind is None and re.search(rb"\s__label__\S", start):
        kind = "fasttext"  # with the labels after the text
    if kind is None and suffix == TEXT_SUFFIX:
        kind = "plain"
    if kind is not None:
        return kind
    wanted = f"one of these: {', '.join(words for kind, words in FORMAT_NAMES.items() if kind != 'plain')}"
    raise UnrecognizedError(str(bad(path, number, shown(first.strip()), wanted)))


def _read_files(train: Path, test: Path | None, columns: Columns) -> _Parts:
    """Read one file, or a pair of train and test files."""
    format_ = _kind_of(train, columns)
    pair = "" if test is None else ", train and test files"
    if format_ in records.FORMATS:
        columns, notation = records.with_separator(train, format_, columns)
        after = None
        if test is not None:
            after = records.iter_records(test, _kind_of(test, columns), columns)
        first, second, names = read_splits(records.iter_records(train, format_, columns), after)
        words = f"{FORMAT_NAMES[format_]}, {notation}" if notation else FORMAT_NAMES[format_]
        return _Parts(words + pair, first, second, names)
    words = FORMAT_NAMES[format_] + pair
    X, Y = matrices.read_xmc(train)
    if test is None:
        return _Parts(words, Split(X, Y), None)
    if (other := recognize(test, columns)) not in ("xmc", "svmlight"):
        raise bad(test, None, FORMAT_NAMES[other], f"{FORMAT_NAMES[format_]}, as in {train.name}")
    test_X, test_Y = matrices.read_xmc(test)
    # Files without a header do not state their numbers of features and labels: take the larger ones.
    n_features, n_labels = (max(one.shape[1], two.shape[1]) for one, two in ((X, test_X), (Y, test_Y)))
    if format_ == "svmlight":
        X, Y = widen(X, n_features), widen(Y, n_labels)
    if other == "svmlight":
        test_X, test_Y = widen(test_X, n_features), widen(test_Y, n_labels)
    return _Parts(words, Split(X, Y), Split(test_X, test_Y))


def _read_folder(folder: Path, columns: Columns, split: int) -> _Parts:
    layout, names = _layout(folder)
    if layout == "matrices":
        text = not any(matrices.has_part(folder, part) for part in ("trn", "tst"))
        train = matrices.read_split(folder, "trn", text=text)
        test = (
            matrices.read_split(folder, "tst", text=text) if matrices.has_part(folder, "tst", text=text) else None
        )
        kind = "mapped" if (folder / "X.trn").is_dir() else "npz"
        words = f"{kind} matrices, {'sparse' if sp.issparse(train.X) else 'dense'} features"
        newer = "Extreme Classification Repository text, newer form (X_Xf and X_Y)"
        return _Parts(newer if text else words, train, test)
    if layout == "split files":
        return _read_with_split_files(folder, names, split)
    if layout == "texts":
        return _read_files(folder, None, columns)
    return _read_files(*_find_pair(folder, names), columns)


def _layout(folder: Path) -> tuple[str, list[str]]:
    """Return the layout of a folder, and the names of its files."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    if any(matrices.has_part(folder, part, text=text) for part in ("trn", "tst") for text in (False, True)):
        return "matrices", names
    if any(_SPLIT_FILE.fullmatch(name) for name in names):
        return "split files", names
    pair = any(_TRAIN.fullmatch(name) or _TEST.fullmatch(name) for name in names)
    pair = pair or bool(text_files(folder / "train")) or not text_files(folder)
    return "pair" if pair else "texts", names


def _find_pair(folder: Path, names: list[str]) -> tuple[Path, Path | None]:
    """Return the train file (or folder of texts) in a folder, and the test file if there is one."""
    pair = [[name for name in names if pattern.fullmatch(name)] for pattern in (_TRAIN, _TEST)]
    if not pair[0] and not pair[1] and text_files(folder / "train"):
        test = folder / "test"
        return folder / "train", test if test.is_dir() else None
    if not pair[0] and not pair[1]:
        some = ", ".join(names[:8]) or "nothing"
        raise bad(folder, None, f"{some} in the folder", ACCEPTED)
    if not pair[0]:
        missing = re.sub(r"(?i)(test|tst)(?=\.)", "train", pair[1][0])
        raise bad(folder, None, f"{pair[1][0]} but no {missing}", f"{missing} as well")
    for found in pair:
        if len(found) > 1:
            raise bad(folder, None, " and ".join(found), "one of them")
    return folder / pair[0][0], folder / pair[1][0] if pair[1] else None


def _read_with_split_files(folder: Path, names: list[str], split: int) -> _Parts:
    files: dict[str, Path] = {}
    for name in names:
        if match := _SPLIT_FILE.fullmatch(name):
            if match[1] in files:
                raise bad(folder, None, f"{files[match[1]].name} and {name}", "one of them")
            files[match[1]] = folder / name
    for part in ("tr", "tst"):
        if part not in files:
            other = next(iter(files.values())).name
            missing = re.sub(r"_(tr|tst)Split", f"_{part}Split", other)
            raise bad(folder, None, f"{other} but no {missing}", f"{missing} as well")
    stem = re.sub(r"_trSplit.*", "", files["tr"].name)
    candidates = (f"{stem}_data.txt", f"{stem}.txt", "data.txt")
    data = next((path for name in candidates if (path := plain_or_packed(folder, name))), None)
    if data is None:
        raise bad(folder, None, f"{files['tr'].name} but no {candidates[0]}", "the data file as well")
    whole = Split(*matrices.read_xmc(data))
    rows = [matrices.read_split_rows(files[part], split, whole.n) for part in ("tr", "tst")]
    if both := np.intersect1d(rows[0], rows[1]).size:
        raise bad(files["tst"], None, f"{both} rows of {files['tr'].name} too", "different rows in train and test")
    words = f"{FORMAT_NAMES['xmc']}, one file with split files, split {split}"
    return _Parts(words, whole.take(rows[0]), whole.take(rows[1]))


def _with_companions(folder: Path, found: _Parts) -> _Parts:
    """Add the label names and raw texts from files beside the matrices."""
    names, parts = found.names, []
    for split, part in ((found.train, "train"), (found.test, "test")):
        path = plain_or_packed(folder, f"{part}_raw_texts.txt")
        if split is None or split.X is None or path is None:
            parts.append(split)
            continue
        lines = [line.rstrip("\r\n") for _, line in iter_text(path)]
        if len(lines) != split.n:
            raise bad(path, None, f"{len(lines)} texts", f"one for each of {split.n} {part} rows")
        parts.append(replace(split, texts=lines))
    files = [plain_or_packed(folder, name) for name in ("labels.tsv", "labels.txt")]
    if names is None and (path := files[0] or files[1]):
        names = read_label_names(path)
        check_label_names(names, found.train.Y.shape[1], str(path))
    assert parts[0] is not None
    return replace(found, train=parts[0], test=parts[1], names=names)


def read_names(path: Path | str, language: str | None = None) -> dict[str, str]:
    """Read the names in a vocabulary, by URI.

    Of SKOS names, read those in one `language`, such as `en`. Default: the most frequent one; of equally frequent
    ones, English.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: found no vocabulary; wanted a file of URIs and names")
    # Names of the formats in rdflib.
    formats = {".ttl": "turtle", ".nt": "nt", ".rdf": "xml", ".xml": "xml"}
    kind = formats.get(Path(path.name.lower().removesuffix(".gz")).suffix)
    return _read_tsv(path) if kind is None else _read_skos(path, kind, language)


def rename_labels(dataset: Dataset, names: dict[str, str], source: Path | str) -> Dataset:
    """Replace the URIs in a dataset's `label_names` by names, and keep the URIs as `label_uris`.

    If several labels share a name, the URI follows it in parentheses. A label that is not in the vocabulary keeps
    its URI as its name; the dataset's `format` says how many do.
    """
    uris = dataset.label_names
    if uris is None:
        raise DataError(
            f"{dataset.source}: found labels without URIs ({dataset.format}); names have to be for URIs"
        )
    found = [names.get(uri, uri) for uri in uris]
    missing = sum(uri not in names for uri in uris)
    if missing == len(uris):
        raise DataError(
            f"{source}: found none of the {len(uris):,} labels of {dataset.source}, such as {shown(uris[0])}; "
            "wanted the vocabulary that they are from"
        )
    unique = _unique_names(found, uris)
    words = f"{dataset.format}, names from {Path(source).name}"
    if missing:
        words += f" ({missing:,} labels are not in it and keep their URIs)"
    return replace(dataset, label_names=unique, label_uris=uris, format=words)


def read_label_names(path: Path) -> list[str]:
    """Read the label names of a matrix: one per line or, in a `.tsv`, after an identifier and a tab."""
    identifiers, names = [], []
    for number, line in iter_text(path):
        identifier, tab, name = line.rstrip("\r\n").partition("\t")
        name = name if tab else identifier
        if ".tsv" not in path.suffixes and tab:
            raise bad(path, number, f"a tab in {shown(line)}", "one label name per line")
        check_label(name, path, number)
        identifiers.append(identifier)
        names.append(name)
    return _unique_names(names, identifiers)


def _unique_names(names: list[str], identifiers: list[str]) -> list[str]:
    """Make names unique: if several labels share one, add their identifiers in parentheses."""
    count = Counter(names)
    return [
        name if count[name] == 1 or name == identifier else f"{name} ({identifier})"
        for name, identifier in zip(names, identifiers, strict=True)
    ]


def _read_tsv(path: Path) -> dict[str, str]:
    names: dict[str, str] = {}
    for number, line in iter_text(path):
        if line.isspace():
            continue
        uri, *fields = line.rstrip("\r\n").split("\t")
        uri = uri[1:-1] if uri[:1] + uri[-1:] == "<>" else uri
        if not fields or not uri:
            raise bad(path, number, shown(line.strip()), "a URI, a tab and a name")
        check_label(fields[0], path, number)
        if names.setdefault(uri, fields[0]) != fields[0]:
            raise bad(path, number, f"another name of {shown(uri)}, {shown(fields[0])}", "one name for each URI")
    return names


def _read_skos(path: Path, kind: str, language: str | None) -> dict[str, str]:
    require("rdflib", extra="skos", purpose="reading SKOS")
    import rdflib

    graph: Any = rdflib.Graph()
    try:
        if path.name.lower().endswith(".gz"):
            graph.parse(data=read_gzip(path), format=kind)
        else:
            graph.parse(path, format=kind)
    except CircletError:  # the unpacked file is too large
        raise
    except Exception as error:  # rdflib's parsers raise errors of many types
        raise DataError(f"{path}: found no readable {kind} ({str(error).splitlines()[0][:200]})") from error
    preferred = rdflib.URIRef("http://www.w3.org/2004/02/skos/core#prefLabel")
    labels = [
        (str(subject), str(name), (name.language or "").lower())
        for subject, name in graph.subject_objects(preferred)
        if not label_fault(str(name))
    ]
    languages = Counter(tag for _, _, tag in labels)
    if not languages:
        raise DataError(f"{path}: found no skos:prefLabel; wanted a SKOS vocabulary")
    most = max(languages.values())
    wanted = language.lower() if language else "en" if languages["en"] == most else languages.most_common(1)[0][0]
    if wanted not in languages:
        known = ", ".join(sorted(tag for tag in languages if tag)) or "none"
        raise DataError(f"{path}: found names in the languages {known}; wanted one of these, not {language}")
    # Sorted, since a graph has no order.
    return {uri: name for uri, name, tag in sorted(labels, reverse=True) if tag == wanted}


def read_splits(
    train: Iterable[Record], test: Iterable[Record] | None = None
) -> tuple[Split, Split | None, list[str]]:
    """Number the labels and build the splits.

    The labels of `train` come first, sorted by name; labels that are only in `test` follow, sorted as well.
    """
    numbers: dict[str, int] = {}
    names: list[str] = []
    parts = []
    for part in (train,) if test is None else (train, test):
        texts, ids, labels, ends = [], [], array("q"), array("q", [0])
        for record in part:
            texts.append(record.text)
            ids.append(record.id)
            labels.extend([numbers.setdefault(label, len(numbers)) for label in record.labels])
            ends.append(len(labels))
        names += sorted(list(numbers)[len(names) :])
        parts.append((texts, ids, labels, ends))
    position = np.empty(len(names), np.int32)
    position[[numbers[name] for name in names]] = np.arange(len(names))
    splits: list[Split | None] = []
    for texts, ids, labels, ends in parts:
        entries = (np.ones(len(labels), np.float32), position[np.asarray(labels)], np.asarray(ends))
        Y = sp.csr_matrix(entries, shape=(len(texts), len(names)))
        Y.sort_indices()
        named = any(each is not None for each in ids)
        own = [row if each is None else each for row, each in enumerate(ids)] if named else None
        splits.append(Split(None, Y, texts, own))
    first, second = (*splits, None)[:2]
    assert first is not None
    return first, second, names
