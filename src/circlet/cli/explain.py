"""`circlet explain`: why a document gets a label."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from circlet.cli import options
from circlet.cli.console import out, print_json, printable
from circlet.errors import DataError, ParameterError
from circlet.report import Table

if TYPE_CHECKING:
    from rich.text import Text

    from circlet.runtime import Tagger
    from circlet.runtime.explain import Explanation

#: Number of terms in a table.
SHOWN = 8
#: Contributions, relative to the strongest one, from which a word is bold, or has a color.
STRONG, WEAK = 0.5, 0.1


def explain(
    model: options.ModelFolder,
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="A text, or - for standard input; with --row, data in any format."),
    ],
    label: Annotated[
        list[str] | None,
        typer.Option(help="Explain this label; can be repeated.", show_default="the k most probable ones"),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of labels to explain, the most probable ones.")] = 3,
    row: Annotated[
        int | None, typer.Option(min=0, help="Explain this row of the data in TEXT, counted from 0.")
    ] = None,
    similar: Annotated[
        int,
        typer.Option(
            min=0, help="Number of similar training documents to show; needs a model trained with --keep-index."
        ),
    ] = 0,
    text_column: options.TextColumn = "text",
    as_json: options.AsJson = False,
) -> None:
    """Show how much the words or features of a document add to the scores of its labels.

    The score of a label is the sum of these numbers and of the base, the score of an empty document.
    docs/explain.md explains the numbers.
    """
    from circlet.runtime import load
    from circlet.runtime.answers import rounded, shown

    tagger = load(model)
    document = _document(tagger, text, row, text_column)
    found = tagger.explain(
        document, k, None if not label else [known_label(tagger, name, "--label") for name in label]
    )[0]
    alike = None
    if similar:
        ids, similarities = (each[0].tolist() for each in tagger.similar(document, similar))
        alike = [{"id": one, "similarity": rounded(much)} for one, much in zip(ids, similarities, strict=True)]
    if as_json:
        described = {"explanations": [{**asdict(each), "spans": each.spans()} for each in found]}
        print_json(described if alike is None else {**described, "similar": alike}, indent=None)
        return
    for each in found:
        if isinstance(document, list):
            out.print(_marked(document[0], each), soft_wrap=True)
            out.print()
        out.print(_table(each).rich())
    if alike is not None:
        rows = [(str(each["id"]), shown(each["similarity"])) for each in alike]
        out.print(Table("Similar documents", ("id", "similarity"), rows).rich())


def _document(tagger: Tagger, text: str, row: int | None, text_column: str) -> Any:
    """A list of one text, or one row."""
    of_texts = tagger.model_.vectorizer is not None
    if row is not None:
        from circlet.data import load_dataset

        dataset = load_dataset(text, text_column=text_column)
        part = dataset.test or dataset.train
        every: Any = part.texts if of_texts else part.X
        if every is None:
            wanted = "texts" if of_texts else "feature rows"
            raise DataError(
                f"{text}: found {dataset.format}; this model was trained on {wanted} and wants {wanted}"
            )
        if row >= part.n:
            raise ParameterError(f"--row: found {row}; wanted 0 to {part.n - 1}, the rows of {text}")
        return every[row : row + 1]
    if not of_texts:
        raise DataError("found a text; this model wants feature rows: a file or folder with such rows, and --row")
    if text != "-":
        return [text]
    if sys.stdin is None:
        raise DataError("cannot read stdin: it is closed")
    try:
        return [sys.stdin.buffer.read().decode("utf-8-sig").strip()]
    except UnicodeDecodeError as error:
        raise DataError(f"stdin: found bytes that are not UTF-8 ({error.reason}); wanted a text in it") from error


def known_label(tagger: Tagger, name: str, option: str) -> Any:
    """Find a label by its name on the command line; labels may be numbers."""
    for label in tagger.classes_.tolist():
        if str(label) == name:
            return label
    from difflib import get_close_matches

    near = get_close_matches(name, map(str, tagger.classes_.tolist()), n=1)
    wanted = f" (did you mean {near[0]}?)" if near else ""
    raise ParameterError(f"{option}: found {name!r}; wanted one of the {len(tagger.classes_)} labels{wanted}")


def _marked(text: str, explanation: Explanation, console: Console = out) -> Text:
    """Color the words for the label green and those against it red, and print the strongest ones bold.

    Without colors, the strongest words get brackets: [+for+] and [-against-].
    """
    from rich.text import Text

    plain = console.no_color or console.color_system is None
    pieces = _pieces(text, explanation)
    largest = max((abs(value) for _, _, value in pieces), default=0.0)
    marked, before = Text(), 0
    for start, end, value in pieces:
        strength = abs(value) / largest if largest else 0.0
        marked.append(printable(text[before:start], "\n"))
        part, before = printable(text[start:end], "\n"), end
        if plain:
            sign = "+" if value > 0 else "-"
            marked.append(f"[{sign}{part}{sign}]" if strength >= STRONG else part)
        else:
            color = "green" if value > 0 else "red"
            marked.append(part, style=f"bold {color}" if strength >= STRONG else color if strength >= WEAK else "")
    marked.append(printable(text[before:], "\n"))
    return marked


def _pieces(text: str, explanation: Explanation) -> list[tuple[int, int, float]]:
    """The words of a text, and anything else between spaces, with their contributions to the score."""
    import numpy as np

    from circlet.features.vectorizer import words_in

    by_character = np.zeros(len(text) + 1)
    for start, end, value in explanation.spans():
        by_character[start:end] += value / (end - start)
    edges = {edge for match in words_in(text) for edge in match.span()}
    edges |= {edge for match in re.finditer(r"\S+", text) for edge in match.span()}
    spans = ((start, end) for start, end in pairwise(sorted(edges)) if not text[start].isspace())
    return [(start, end, float(by_character[start:end].sum())) for start, end in spans]


def _table(explanation: Explanation) -> Table:
    from circlet.runtime.answers import shown

    strongest = explanation.contributions[:SHOWN]
    rows = [
        (f"“{each.term}”" if each.kind != "feature" else each.term, shown(each.value, "+")) for each in strongest
    ]
    rest = explanation.contributions[SHOWN:]
    if rest:
        rows.append((f"{len(rest):,} others", shown(sum(each.value for each in rest), "+")))
    rows.append(("(empty document)", shown(explanation.base, "+")))
    rows.append(("score", shown(explanation.score, "+")))
    title = f"{explanation.label}: probability {shown(explanation.probability)}"
    return Table(title, ("what", "adds"), rows)
