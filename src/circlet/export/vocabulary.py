"""A text vectorizer as JSON that says how to use it, so that any language can turn texts into rows."""

from __future__ import annotations

from typing import Any

from circlet.features.terms import IDEOGRAPHS
from circlet.features.vectorizer import TextVectorizer

__all__ = ["FORMAT", "WORD", "vocabulary"]

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
    """What makes rows of texts, ready for JSON: steps in words, and for each part its terms and their idf."""
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
