"""Turn texts into sparse tf-idf rows, with a saved vocabulary.

scikit-learn learns the vocabulary. This module adds words of every script, a state in JSON and safetensors instead
of a pickle, and rows without scikit-learn, whose import takes many times longer than tagging a text.

**What a word is.** A run of letters and digits of any length, with their combining marks. (Words of `re` exclude
marks, which would cut Hindi, Tamil or vocalized Arabic at every vowel.) A Han ideograph or a Hiragana letter is a
word by itself, as in Unicode's word boundaries (UAX #29); n-grams of two words are the bigrams usual for Chinese
and Japanese. Thai, Lao, Khmer and Burmese need a dictionary to be split into words: use `char_ngrams` for these.
Emoji and punctuation are not words, but they occur in character n-grams.

**How a text is prepared.** NFKC, so that each letter has one form (é composed or not, a full-width X), then lower
case. A lone surrogate, which UTF-8 cannot encode, becomes U+FFFD.

**Files.** `vectorizer.json` and `vectorizer.safetensors`. Damaged, foreign or newer files raise a `DataError`.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, hstack

from circlet.checks import for_training
from circlet.errors import DataError, DTypeError, ParameterError
from circlet.features.rows import Entries, divide_by_norms
from circlet.files import prepare_folder, read_bytes, read_json, read_tensors, write_tensors, write_text
from circlet.settings.network import NGrams, check_frequencies, check_ngrams

#: What `vectorizer.json` says that it is.
KIND, FORMAT = "tfidf", 1
STATE_FILE = "vectorizer.json"
TENSOR_FILE = "vectorizer.safetensors"
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class _Fit:
    """The vocabulary of each kind of feature, and the idf of all terms."""

    vocabularies: dict[str, Vocabulary]
    idf: npt.NDArray[np.float64]


class TextVectorizer:
    """Tf-idf of words and, optionally, of character n-grams; rows have length 1.

    Parameters
    ----------
    word_ngrams : (int, int) or None
        Shortest and longest run of words that is a feature; None for no words at all.
    char_ngrams : (int, int) or None
        The same for runs of characters within a word, as additional features. Words and characters then have equal
        weight: each part of a row is normalized before they are concatenated.
    sublinear_tf : bool
        Count a term that occurs t times as 1 + log t.
    min_df : int or float
        Leave out terms that occur in fewer texts than this: a count, or a fraction below 1 of the texts.
    max_features : int or None
        Keep only the most frequent terms: this many words and this many character n-grams.
    lowercase : bool

    Examples
    --------
    >>> from circlet.features.vectorizer import TextVectorizer
    >>> vectorizer = TextVectorizer().fit(["a red fox", "the red car"])
    >>> vectorizer.feature_names()
    ['a', 'car', 'fox', 'red', 'the']
    >>> vectorizer.transform(["red", "blue"]).toarray().tolist()
    [[0.0, 0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]]
    """

    def __init__(
        self,
        *,
        word_ngrams: NGrams | None = (1, 1),
        char_ngrams: NGrams | None = None,
        sublinear_tf: bool = True,
        min_df: int | float = 1,
        max_features: int | None = None,
        lowercase: bool = True,
    ) -> None:
        self.word_ngrams, self.char_ngrams = check_ngrams(word_ngrams, char_ngrams)
        for name, value in (("sublinear_tf", sublinear_tf), ("lowercase", lowercase)):
            if not isinstance(value, bool):
                raise ParameterError(f"`{name}`: found {value!r}; wanted True or False")
        self.sublinear_tf, self.lowercase = sublinear_tf, lowercase
        self.min_df, self.max_features = check_frequencies(min_df, max_features)
        #: Finds the terms of each kind of feature: words, then characters.
        self._kinds: dict[str, Words] = {}
        if self.word_ngrams is not None:
            self._kinds["word"] = Words(*self.word_ngrams)
        if self.char_ngrams is not None:
            # N-grams do not span two words, since such n-grams are mostly rare.
            self._kinds["char"] = Characters(*self.char_ngrams)
        self._fitted: _Fit | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the arguments of an equal, unfitted vectorizer."""
        names = ("word_ngrams", "char_ngrams", "sublinear_tf", "lowercase", "min_df", "max_features")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.parameters().items())
        return f"TextVectorizer({arguments})"

    def fit(self, texts: Iterable[str]) -> TextVectorizer:
        """Learn the terms of `texts` and their document frequencies."""
        self.fit_transform(texts)
        return self

    def fit_transform(self, texts: Iterable[str]) -> csr_matrix:
        """Learn from `texts` and return their rows: `fit` and `transform` in one pass."""
        with for_training("fitting a TextVectorizer"):
            from sklearn.feature_extraction.text import TfidfVectorizer

        texts = list(check_texts("fit", texts))
        vocabularies, idf = {}, [np.zeros(0)]
        blocks = []
        for kind, terms in self._kinds.items():
            vectorizer = TfidfVectorizer(
                analyzer=lambda text, terms=terms: terms(self._prepare(text)),
                sublinear_tf=self.sublinear_tf,
                norm=None,
                min_df=self.min_df,
                max_features=self.max_features,
            )
            try:
                blocks.append(vectorizer.fit_transform(texts))
                vocabularies[kind] = Vocabulary(vectorizer.get_feature_names_out().tolist())
                idf.append(vectorizer.idf_)
            except ValueError:
                # The arguments are valid, so the only possible reason is that no term remains. A corpus of emoji,
                # for instance, has no words, but it has characters.
                vocabularies[kind] = Vocabulary([])
        if not blocks:
            raise DataError(
                f"found no term in at least min_df={self.min_df} of the {len(texts)} texts; "
                "wanted texts that have words"
            )
        self._fitted = _Fit(vocabularies, np.concatenate(idf))
        # Each block is normalized, and then the concatenated rows.
        blocks = [_unit_rows(csr_matrix(block)) for block in blocks]
        rows = blocks[0] if len(blocks) == 1 else _unit_rows(csr_matrix(hstack(blocks, format="csr")))
        return rows.astype(np.float32)

    def transform(self, texts: Iterable[str]) -> csr_matrix:
        """Return one row per text, float32 and of norm 1, or empty if no term of the text is known."""
        return self.entries(texts).matrix(self.n_features)

    def entries(self, texts: Iterable[str]) -> Entries:
        """Return the entries of the rows that `transform` returns.

        Making a sparse matrix takes longer than computing the row of a short text.
        """
        texts = list(check_texts("transform", texts))
        known = self._known()
        vocabularies = ((vocabulary, self._kinds[kind]) for kind, vocabulary in known.vocabularies.items())
        kinds = [(vocabulary, terms) for vocabulary, terms in vocabularies if len(vocabulary)]
        found, times = [], []
        for text in map(self._prepare, texts):
            before = 0
            for vocabulary, terms in kinds:
                columns, counts = vocabulary.count(text, terms)
                found.append(columns + np.intc(before) if before else columns)
                times.append(counts)
                before = len(vocabulary)
        if not texts:
            return Entries(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.intc), np.empty(0, dtype=np.float32))
        columns, values = np.concatenate(found), np.concatenate(times).astype(np.float64)
        if self.sublinear_tf:
            values = np.log(values) + 1
        values *= known.idf[columns]
        ends = np.cumsum([0, *map(len, found)])
        divide_by_norms(values, ends)
        if len(kinds) > 1:
            ends = ends[:: len(kinds)]
            divide_by_norms(values, ends)
        return Entries(ends, columns, values.astype(np.float32))

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return len(self._known().idf)

    def feature_names(self) -> list[str]:
        """Return the term of each column: words in order of code points, then character n-grams likewise."""
        return [term for vocabulary in self._known().vocabularies.values() for term in vocabulary.terms]

    def vocabulary(self) -> dict[str, tuple[list[str], npt.NDArray[np.float64]]]:
        """Return the terms of each kind of feature, in the order of their columns, and their idf."""
        known, start, found = self._known(), 0, {}
        for kind, own in known.vocabularies.items():
            found[kind] = (own.terms, known.idf[start : start + len(own)])
            start += len(own)
        return found

    def spans(self, text: str) -> dict[int, list[Span]]:
        """Return start and end of each occurrence of the known terms in a text, by column."""
        text = _SURROGATES.sub("\ufffd", text)
        places = origins(text, unicodedata.normalize("NFKC", text), lowercase=self.lowercase)
        found: dict[int, list[Span]] = {}
        prepared, before = self._prepare(text), 0
        for kind, vocabulary in self._known().vocabularies.items():
            terms = list(occurrences(prepared, self._kinds[kind]))
            columns = vocabulary.lookup([term for term, _, _ in terms]).tolist()
            for column, (_, start, end) in zip(columns, terms, strict=True):
                if column >= 0:
                    span = int(places[0, start]), int(places[1, end - 1])
                    found.setdefault(before + column, []).append(span)
            before += len(vocabulary)
        return found

    def save(self, folder: str | Path) -> None:
        """Write `vectorizer.json` and `vectorizer.safetensors` into `folder`."""
        prepare_folder(Path(folder))
        self.write(Path(folder) / STATE_FILE, Path(folder) / TENSOR_FILE)

    def write(self, state: Path, numbers: Path) -> None:
        """Write the two files to these paths."""
        known = self._known()
        terms = {kind: vocabulary.terms for kind, vocabulary in known.vocabularies.items()}
        # The state comes last and has a digest of the numbers, so an interrupted save is detected.
        write_tensors(numbers, {"idf": known.idf})
        saved = {"kind": KIND, "format": FORMAT, "parameters": self.parameters(), "terms": terms}
        # ASCII only, so that no reader, editor or line ending changes a term.
        described = json.dumps(saved)
        write_text(state, described[:-1] + _ending(_digest(described.encode(), known.idf)))

    @classmethod
    def load(cls, folder: str | Path) -> TextVectorizer:
        """Read files from `save`; raise `DataError` if damaged, of another kind or from a newer circlet."""
        return cls.read(Path(folder) / STATE_FILE, Path(folder) / TENSOR_FILE)

    @classmethod
    def read(cls, path: Path, numbers: Path) -> TextVectorizer:
        """Read files from `write`; both may be gzipped."""
        state = read_state(path)
        parameters, wanted = state["parameters"], sorted(cls().parameters())
        if not isinstance(parameters, dict) or sorted(parameters) != wanted:
            found = sorted(parameters) if isinstance(parameters, dict) else parameters
            raise DataError(f"{path}: `parameters`: found {found!r}; wanted {wanted}")
        try:
            vectorizer = cls(**parameters)
        except ParameterError as error:
            raise DataError(f"{path}: {error}") from error
        vocabularies = check_terms(path, state["terms"], list(vectorizer._kinds))
        tensors, _ = read_tensors(numbers, "numpy")
        if list(tensors) != ["idf"]:
            raise DataError(f"{numbers}: found tensors {list(tensors)}; wanted one, 'idf'")
        idf, size = tensors["idf"], sum(map(len, vocabularies.values()))
        if idf.dtype != np.float64 or idf.shape != (size,):
            found = f"{idf.dtype} of shape {idf.shape}"
            raise DataError(f"{numbers}: 'idf': found {found}; wanted float64 of shape ({size},), one per term")
        if not np.isfinite(idf).all():
            raise DataError(f"{numbers}: 'idf': found non-finite numbers; wanted finite ones")
        ending, content = _ending(state["sha256"]).encode(), read_bytes(path)
        if content.endswith(ending):
            described = content[: -len(ending)] + b"}"
        else:  # the file was reformatted
            described = json.dumps({name: each for name, each in state.items() if name != "sha256"}).encode()
        if state["sha256"] != _digest(described, idf):
            raise DataError(f"{path}: damaged, or saved at another time than {numbers.name}: the sha256 differs")
        vectorizer._fitted = _Fit(vocabularies, idf)
        return vectorizer

    def _prepare(self, text: str) -> str:
        return normalize_text(text, lowercase=self.lowercase)

    def _known(self) -> _Fit:
        if self._fitted is None:
            with for_training("fitting a TextVectorizer"):
                from sklearn.exceptions import NotFittedError

            raise NotFittedError("this TextVectorizer is not fitted: call `fit` first, or `load` one")
        return self._fitted


def load_vectorizer(folder: str | Path) -> TextVectorizer:
    """Load the vectorizer that was saved in `folder`."""
    return TextVectorizer.load(folder)


def normalize_text(text: str, *, lowercase: bool = True) -> str:
    """Normalize a text before its terms are looked up."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _SURROGATES.sub("\ufffd", text))
    return text.lower() if lowercase else text


def _unit_rows(rows: csr_matrix) -> csr_matrix:
    # `fit_transform` and `transform` give different column orders, and a sum's last bit depends on the order.
    rows.sort_indices()
    rows.data = rows.data.astype(np.float64)
    divide_by_norms(rows.data, rows.indptr)
    return rows


def check_texts(operation: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield texts one by one; raise `DTypeError` at the first object that is not a text."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise DTypeError(f"{operation}: `texts`: found {type(texts).__name__}; wanted a list of str")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise DTypeError(f"{operation}: texts[{position}]: found {type(text).__name__}; wanted a str")
        yield text


def read_state(path: Path) -> dict[str, Any]:
    """Read `vectorizer.json` and check its kind, format and keys."""
    state = read_json(path)
    if not isinstance(state, dict):
        raise DataError(f"{path}: a saved vectorizer is a JSON object, found {type(state).__name__}")
    if state.get("kind") != KIND:
        raise DataError(f"{path}: `kind`: found {state.get('kind')!r}; wanted {KIND!r}")
    version = state.get("format")
    if type(version) is int and version > FORMAT:
        raise DataError(f"{path}: saved by a newer circlet (format {version}); this one reads up to {FORMAT}")
    if type(version) is not int or version != FORMAT:
        raise DataError(f"{path}: `format`: found {version!r}; wanted {FORMAT}")
    wanted = {"kind", "format", "parameters", "terms", "sha256"}
    if set(state) != wanted:
        raise DataError(f"{path}: found the keys {sorted(state)}; wanted {sorted(wanted)}")
    return state


def check_terms(path: Path, terms: Any, kinds: list[str]) -> dict[str, Vocabulary]:
    """Check the terms (at least one, all different) and return the vocabulary of each kind, in order."""
    if not isinstance(terms, dict) or sorted(terms) != sorted(kinds):
        found = sorted(terms) if isinstance(terms, dict) else type(terms).__name__
        raise DataError(f"{path}: `terms`: found {found}; wanted a list for each of {kinds}")
    vocabularies = {}
    for kind in kinds:
        if not isinstance(terms[kind], list) or not set(map(type, terms[kind])) <= {str}:
            raise DataError(
                f"{path}: the terms of {kind!r}: found {type(terms[kind]).__name__}; wanted a list of str"
            )
        vocabularies[kind] = Vocabulary(terms[kind])
        if not vocabularies[kind].all_different:
            raise DataError(f"{path}: the terms of {kind!r}: found the same twice; wanted different ones")
    if not any(terms.values()):
        raise DataError(f"{path}: found no terms; wanted at least one")
    return vocabularies


def _digest(described: bytes, idf: npt.NDArray[np.float64]) -> str:
    return hashlib.sha256(described + idf.astype("<f8").tobytes()).hexdigest()


def _ending(digest: Any) -> str:
    """Return the end of the file, with the digest of everything before it."""
    return f', "sha256": {json.dumps(digest)}}}\n'


#: Start and end, in characters.
Span = tuple[int, int]

#: Characters that are words by themselves: Han (with its radicals, 々 and 〇) and Hiragana.
IDEOGRAPHS = "\u2e80-\u2fdf\u3005\u3007\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"


class Words:
    """Finds the terms of a text, runs of words joined by spaces; see `word_pattern` for what a word is."""

    def __init__(self, shortest: int, longest: int) -> None:
        self.shortest, self.longest = shortest, longest

    def __call__(self, text: str) -> list[str]:
        """Return all terms of a text, including repeated ones."""
        found: list[str] = _word(text.isascii()).findall(text)
        runs = found if self.shortest == 1 else []
        for size in range(max(self.shortest, 2), min(self.longest, len(found)) + 1):
            runs = runs + [" ".join(found[start : start + size]) for start in range(len(found) - size + 1)]
        return runs

    def columns(self, text: str, vocabulary: Vocabulary) -> npt.NDArray[np.intc]:
        """Return the columns of all terms of a text, in any order; −1 for unknown terms."""
        return vocabulary.lookup(self(text))


def words_in(text: str) -> Iterator[re.Match[str]]:
    """Iterate over the matches of the words in a text."""
    return _word(text.isascii()).finditer(text)


class Characters(Words):
    """Runs of characters within words; a space is added at both ends of a word."""

    def __call__(self, text: str) -> list[str]:
        return list(chain.from_iterable(map(self._within, text.split())))

    def columns(self, text: str, vocabulary: Vocabulary) -> npt.NDArray[np.intc]:
        # A word has a dozen runs, and texts share most words: caching the columns by word saves most of the time.
        known = vocabulary.cache
        found = []
        for word in text.split():
            columns = known.get(word)
            if columns is None:
                if len(known) >= vocabulary.cache_size:
                    known.clear()
                columns = known[word] = vocabulary.lookup(self._within(word))
            found.append(columns)
        return np.concatenate(found) if found else np.empty(0, dtype=np.intc)

    def _within(self, word: str) -> list[str]:
        padded, runs = f" {word} ", []
        for size in range(self.shortest, self.longest + 1):
            runs += [padded[start : start + size] for start in range(max(1, len(padded) - size + 1))]
            if size >= len(padded):  # a short word counts once
                break
        return runs


class Vocabulary:
    """The columns of known terms, which are given in the order of their columns."""

    def __init__(self, terms: list[str], cache_size: int = 1 << 14) -> None:
        self.terms, self.cache_size = terms, cache_size
        self._columns = {term: column for column, term in enumerate(terms)}
        #: Columns of the character runs of `cache_size` recent words, by default a few megabytes.
        self.cache: dict[str, npt.NDArray[np.intc]] = {}

    def __len__(self) -> int:
        return len(self.terms)

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocabulary, (self.terms,)  # the rest is computed from the terms

    @property
    def all_different(self) -> bool:
        """Whether no term has two columns."""
        return len(self._columns) == len(self.terms)

    def lookup(self, terms: list[str]) -> npt.NDArray[np.intc]:
        """Return the columns of terms; −1 for unknown terms."""
        return np.fromiter(map(self._columns.get, terms, repeat(-1)), dtype=np.intc, count=len(terms))

    def count(self, text: str, terms: Words) -> tuple[npt.NDArray[np.intc], npt.NDArray[np.int64]]:
        """Return the sorted columns of a text's known terms, and how often each term occurs."""
        columns = terms.columns(text, self)
        columns.sort()
        # True where a column differs from the previous one, and at the end; unknown terms come first.
        edges = np.ones(len(columns) + 1, dtype=bool)
        np.not_equal(columns[1:], columns[:-1], out=edges[1:-1])
        (bounds,) = edges.nonzero()
        found, times = columns[bounds[:-1]], bounds[1:] - bounds[:-1]
        return (found[1:], times[1:]) if len(found) and found[0] < 0 else (found, times)


@cache
def word_pattern() -> str:
    """Return the regular expression of a word, with the combining marks of this Python's Unicode version."""
    codes = chain(range(0x300, 0x20000), range(0xE0100, 0xE01F0))  # no other range has combining marks
    marks = [char for char in map(chr, codes) if unicodedata.category(char).startswith("M")]
    marks += "\u200c\u200d"  # join or separate letters within words, in Persian and Indic scripts
    # `re` searches a set with characters beyond 16 bits range by range. With a single set for all marks, plain
    # text would take ten times as long.
    low = "(?=[\u0300-\uffff])[" + "".join(mark for mark in marks if mark <= "\uffff") + "]"
    high = "(?=[\U00010000-\U0010ffff])[" + "".join(mark for mark in marks if mark > "\uffff") + "]"
    letters = f"[^\\W{IDEOGRAPHS}]"
    return f"{letters}+(?:(?:{low}|{high})+{letters}*)*|[{IDEOGRAPHS}](?:{low}|{high})*"


@cache
def _word(is_ascii: bool) -> re.Pattern[str]:
    # ASCII has neither ideographs nor combining marks. The full pattern is compiled only for the first non-ASCII
    # text, since compiling it takes as long as tagging a hundred texts.
    return re.compile(r"\w+", re.ASCII) if is_ascii else re.compile(word_pattern())


def origins(original: str, normalized: str, *, lowercase: bool) -> npt.NDArray[np.int64]:
    """Map each character of a prepared text to its start and end in the original, `(2, length)`.

    The original has no lone surrogates. `normalized` is in NFKC; the prepared text is this in lower case, or this.
    """
    if original == normalized:
        ends = np.arange(1, len(original) + 1)
        lengths = np.ones(len(original), dtype=np.int64)
    else:
        ends = np.array([end for _, end in _pieces(original)], dtype=np.int64)
        lengths = np.array([len(unicodedata.normalize("NFKC", original[a:b])) for a, b in _pieces(original)])
    places = np.repeat(np.stack([np.concatenate([[0], ends[:-1]])[: len(ends)], ends]), lengths, axis=1)
    if lowercase and not normalized.isascii():
        places = np.repeat(places, [len(char.lower()) for char in normalized], axis=1)
    return places


def occurrences(prepared: str, terms: Words) -> Iterator[tuple[str, int, int]]:
    """Yield all terms of a prepared text, in the order of `terms(prepared)`, with their start and end.

    The spaces that `Characters` adds to a word have no position; a run without other characters gets the position
    of the whole word.
    """
    if not isinstance(terms, Characters):
        found = [match.span() for match in words_in(prepared)]
        runs = [
            (found[first][0], found[first + size - 1][1])
            for size in range(terms.shortest, terms.longest + 1)
            for first in range(len(found) - size + 1)
        ]
    else:
        runs = [run for match in re.finditer(r"\S+", prepared) for run in _runs(match.span(), terms)]
    return ((term, *run) for term, run in zip(terms(prepared), runs, strict=True))


def _runs(word: Span, terms: Characters) -> Iterator[Span]:
    """Yield start and end of the character runs of a word, in the order of `Characters`."""
    start, end = word
    padded = end - start + 2
    for size in range(terms.shortest, terms.longest + 1):
        for first in range(start - 1, start - 1 + max(1, padded - size + 1)):
            run = max(first, start), min(first + size, end)
            yield run if run[0] < run[1] else word
        if size >= padded:
            break


def _pieces(text: str) -> Iterator[Span]:
    """Yield start and end of the parts of a text that can be normalized independently."""
    start = 0
    for place, char in enumerate(text):
        if place and not _combines(char):
            yield start, place
            start = place
    if text:
        yield start, len(text)


def _combines(char: str) -> bool:
    """Whether normalization may combine a character with the previous one, or reorder them."""
    if char < "\u0300":
        return False
    first = unicodedata.normalize("NFKD", char)[0]
    # Hangul vowels and final consonants combine with the previous character, although they are no marks.
    return (
        unicodedata.combining(first) > 0
        or unicodedata.category(first).startswith("M")
        or 0x1160 <= ord(first) < 0x1200
    )
