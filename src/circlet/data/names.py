"""Readable names for labels that are URIs, from a vocabulary: Annif's TSV of subjects, or SKOS.

- `.tsv`, `.txt`: one subject per line: its URI, with or without angle brackets, a tab, and its name. Further
  columns, such as a notation, are ignored.
- `.ttl`, `.nt`, `.rdf`, `.xml`: SKOS in RDF; the name is `skos:prefLabel`. Reading it needs rdflib.

Files may be gzipped, with `.gz` after these suffixes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from circlet.checks import require
from circlet.data.dataset import Dataset, check_label, label_fault
from circlet.errors import CircletError, DataError, bad, shown
from circlet.files import iter_text, read_gzip


def read_names(path: Path | str, language: str | None = None) -> dict[str, str]:
    """Read the names in a vocabulary, by URI.

    Parameters
    ----------
    path : Path or str
    language : str, optional
        Language of SKOS names, such as `en`. Default: the most frequent one; of equally frequent ones, English.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: found no vocabulary; wanted a file of URIs and names")
    # Names of the formats in rdflib.
    formats = {".ttl": "turtle", ".nt": "nt", ".rdf": "xml", ".xml": "xml"}
    kind = formats.get(Path(path.name.lower().removesuffix(".gz")).suffix)
    return _read_tsv(path) if kind is None else _read_skos(path, kind, language)


def named(dataset: Dataset, names: dict[str, str], source: Path | str) -> Dataset:
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
    unique = _told_apart(found, uris)
    words = f"{dataset.format}, names from {Path(source).name}"
    if missing:
        words += f" ({missing:,} labels are not in it and keep their URIs)"
    return replace(dataset, label_names=unique, label_uris=uris, format=words)


def names_by_uri(names: Sequence[str] | None, uris: Sequence[str] | None) -> dict[str, str]:
    """Map the labels' URIs to their names; empty if the labels have no URIs or no names."""
    return {} if names is None or uris is None else dict(zip(uris, names, strict=True))


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
    return _told_apart(names, identifiers)


def _told_apart(names: list[str], identifiers: list[str]) -> list[str]:
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
