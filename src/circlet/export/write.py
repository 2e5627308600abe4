"""Write an ONNX file of a model's folder, and beside it the labels and the rules that turn texts into rows."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circlet import files
from circlet.checks import is_integer
from circlet.encoders import FEATURES
from circlet.errors import ParameterError
from circlet.export.graph import OPSET, tagger
from circlet.features.vectorizer import IDEOGRAPHS, TextVectorizer
from circlet.runtime import RuntimeModel
from circlet.storage.contents import read
from circlet.storage.model import explained

__all__ = [
    "FORMAT",
    "WORD",
    "Written",
    "vocabulary",
    "write_onnx",
]

FORMAT = 1
_LETTER = rf"(?:(?![{IDEOGRAPHS}])[\p{{L}}\p{{N}}_])"
_MARK = "[\\p{M}\u200c\u200d]"
#: What `circlet.features.vectorizer.word_pattern` matches, in the notation of Java, JavaScript (with the flag u),
#: ICU and PCRE. Python's `re` does not know classes such as \p{L}, so the original lists their characters.
WORD = rf"{_LETTER}+(?:{_MARK}+{_LETTER}*)*|[{IDEOGRAPHS}]{_MARK}*"

_PREPARE = (
    "Replace each lone surrogate by U+FFFD, and apply the Unicode normalization NFKC.",
    "If `lowercase` is true, convert to lower case by Unicode's rules, not those of a language.",
)
_FIND = {
    "word": (
        "The terms of a part of kind `word`: find all matches of `pattern`, from left to right, without overlap. "
        "For each length n from the first to the second number of `ngrams`, all runs of n successive matches are "
        "terms, joined by one space."
    ),
    "char": (
        "The terms of a part of kind `char`: split at whitespace (Unicode's White_Space, and U+001C to U+001F), "
        "and put a space at both ends of each piece. For each length n from the first to the second number of "
        "`ngrams`, all runs of n code points are terms. A piece of at most n code points, spaces included, is one "
        "term as a whole, and greater lengths are left out."
    ),
}
_WEIGH = (
    "Count how often each term of `terms` occurs; ignore all others.",
    "If `sublinear_tf` is true, replace each count by 1 + ln(count).",
    "Term i of a part has the column `first_column` + i. Its value is the count times `idf`[i].",
    "Divide the values of each part by their Euclidean norm, unless that is 0.",
    "Divide the values of all parts together by their Euclidean norm, unless that is 0.",
)


def vocabulary(vectorizer: TextVectorizer) -> dict[str, Any]:
    """Return the rules that turn texts into rows, for JSON: steps in words, and terms with their idf by part."""
    parts: list[dict[str, Any]] = []
    parameters, column = vectorizer.parameters(), 0
    for kind, (terms, idf) in vectorizer.vocabulary().items():
        how = {"kind": kind, "ngrams": list(parameters[f"{kind}_ngrams"])}
        how |= {"pattern": WORD} if kind == "word" else {}
        parts.append({**how, "first_column": column, "terms": terms, "idf": idf.tolist()})
        column += len(terms)
    return {
        "format": FORMAT,
        "steps": [*_PREPARE, *(_FIND[part["kind"]] for part in parts), *_WEIGH],
        "lowercase": vectorizer.lowercase,
        "sublinear_tf": vectorizer.sublinear_tf,
        "n_features": column,
        "parts": parts,
    }


#: Bytes that a table of codes may take unless a larger one is asked for.
LARGEST_TABLE = 256_000_000
LABELS, URIS, VOCABULARY = ".labels.txt", ".uris.txt", ".vocabulary.json"


@dataclass(frozen=True)
class Written:
    """The files and their bytes, the version of the operators, and the names of the graph's inputs and outputs."""

    sizes: dict[Path, int]
    opset: int
    inputs: list[str]
    outputs: list[str]


def write_onnx(
    folder: Path, path: Path, *, k: int = 5, large_table: bool = False, overwrite: bool = False
) -> Written:
    """Export a model. If a file can't be written, no file appears.

    Beside FILE.onnx are FILE.labels.txt if labels have names, FILE.uris.txt if they have URIs, and
    FILE.vocabulary.json if documents are texts.

    Parameters
    ----------
    folder : Path
        Of a model.
    path : Path
        Ends in .onnx.
    k : int
        Number of labels of each document.
    large_table : bool
        Whether a table of codes may be larger than `LARGEST_TABLE`.
    overwrite : bool
        Whether the files of an earlier export may be replaced.
    """
    if path.suffix != ".onnx":
        raise ParameterError(f"found {path} as the file to write; wanted a name that ends in .onnx")
    if not is_integer(k, 1):
        raise ParameterError(f"`k`: found {k!r}; wanted an integer >= 1")
    beside = (path.with_suffix(suffix) for suffix in (LABELS, URIS, VOCABULARY))
    earlier = [each for each in (path, *beside) if each.exists()]
    if earlier and not overwrite:
        raise ParameterError(f"{earlier[0]} exists already: choose another name, or replace it with --overwrite")
    with explained(folder):
        saved = read(folder, whole=True)
        model = RuntimeModel.restore(folder, saved, used=False)
    settings, book = model.members[0].settings, model.codebook
    if settings.encoder != FEATURES:
        raise ParameterError(
            f"{folder}: found encoder {settings.encoder}; only models with encoder {FEATURES} can be exported"
        )
    size = 4 * book.n_labels * book.width if book is not None and book.needs_table else 0
    if size > LARGEST_TABLE and not large_table:
        raise ParameterError(
            f"found codebook {settings.codebook_name}, whose codes of {model.n_labels:,} labels would take "
            f"{size / 1e6:,.0f} MB in the file; wanted at most {LARGEST_TABLE / 1e6:,.0f} MB: train a "
            "circular head with codebook spectral, which needs no table, or allow a large one (--large-table)"
        )
    graph = tagger(model, saved.tensors, k)
    slope, intercept = model.calibration
    described = graph.model({"slope": repr(slope), "intercept": repr(intercept)})
    contents = {path: described.SerializeToString()}
    for suffix, lines in ((LABELS, model.label_names), (URIS, model.label_uris)):
        if lines is not None:
            contents[path.with_suffix(suffix)] = "".join(f"{line}\n" for line in lines).encode()
    if isinstance(model.vectorizer, TextVectorizer):
        # ASCII only, so that no reader or editor changes a term.
        contents[path.with_suffix(VOCABULARY)] = json.dumps(vocabulary(model.vectorizer)).encode()
    files.prepare_output(path)
    # No file gets its name before all are written, and the graph gets its name last.
    with ExitStack() as all_files:
        for each, content in contents.items():
            all_files.enter_context(files.output(each)).write(content)
    for each in set(earlier) - set(contents):
        each.unlink()
    return Written(
        {each: len(content) for each, content in contents.items()},
        OPSET,
        [value.name for value in graph.inputs],
        [value.name for value in graph.outputs],
    )
