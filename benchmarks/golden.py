"""What circlet does, recorded to compare two source trees: for changes that should change nothing.

    python benchmarks/golden.py record .golden/before      # on the tree as it was
    python benchmarks/golden.py record .golden/after       # on the tree as it is
    python benchmarks/golden.py compare .golden/before .golden/after

A recording runs the package that Python finds first: with `PYTHONPATH=../other/src`, it records another tree with
this script. It uses only what users have, so that it fits both trees: the command line,
in processes of its own, `CircletClassifier`, `load`, `load_dataset` and `metrics`. It takes about ten minutes on
two cores. `--only 'predict*'` records these commands again in a folder that has been recorded, and `--only logits`
the scores. With `--data FOLDER`, in which there is a folder `bibtex` with X.trn.npz and so on, a slice of it is
the third set; without it, its commands are left out.

DIR gets

- `commands/NAME.txt`: a command with its exit code, what it printed, and the files that it wrote. Times, paths,
  dates and digests are replaced by placeholders;
- `logits.npz`: scores and suggestions of every head × codebook × loss × number of members that goes together, as
  trained and as stored in every way, through torch and without it; and the same of some other set-ups;
- `bytes.json`: the files of every model's folder, with their sizes and digests;
- `work`: the data and the models, which are not compared.

Everything runs on one thread with fixed seeds: recording a tree twice gives the same. `compare` prints what
differs, and exits with 1 if that is more than `EXPECTED` names. Logits may differ by 2e-5, and so may numbers in
texts.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import fnmatch
import gzip
import hashlib
import itertools
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

#: How far logits may be apart.
TOLERANCE = 2e-5
#: Lines that may differ: patterns of the names of commands and of changed lines, and why they changed.
EXPECTED: list[tuple[str, str, str]] = [
    (r"wrong-.*", r"^circlet: ", "errors say what was found and what was wanted"),
    (
        r"train-.*|continue.*|overwrite",
        r"kept the last epoch|^labels are given|^threshold|bag_of_words",
        "messages and settings of training in plain words; a bag of words may stand beside an encoder",
    ),
    (
        r"info-.*",
        r"bag_of_words|^\s*\"encoder\"|MODEL_CARD|config\.json|decided, |threshold",
        "the same in what a model says of itself",
    ),
    (r"info-of-py-(cnn|lstm|transformer)", "", "encoders of texts have their settings and a file of their own"),
    (r"datasets-info-.*", r"^(Recognized|Format): ", "a format is called one"),
    (r"reproduce-capacity", "", "labels held are measured with more repetitions, beside theory"),
    (r"demo|evaluate-unknown|explain-similar|predict-plain-file", "", "messages in plain words"),
    (r"help-.*|wrong-(nothing|datasets|feedback|reproduce)", "", "help in plain words"),
    (r"compress-(json|unit)", r'"bytes', "config.json has a setting more"),
    (r"compress.*", r"calibration run|smallest|trained further", "messages in plain words"),
    (r"bytes", r"^(config|weights|MODEL_CARD|history)|py-(cnn|lstm|transformer)", "the above, in files"),
]


# --- Commands ----------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A command, and how to run and show it."""

    name: str
    words: str
    stdin: str | None = None
    #: Files whose content belongs to what the command does.
    files: tuple[str, ...] = ()
    #: Run it on a terminal, where tables are printed instead of JSON.
    terminal: bool = False
    #: Interrupt it with this signal after its first epoch.
    signal: int = 0
    #: What it needs: a model folder is copied first, because the command changes it.
    copy: tuple[str, str] | None = None
    #: Leave out what it prints, because that depends on how fast it was.
    silent: bool = False


SMALL = (
    "--dim 64 --hidden 32 --dropout 0.2 --epochs 8 --batch-size 32 --first-layer same --lr 0.01 --validation 0.1 "
    "--device cpu"
)
TEXT = "solve a sparse linear system of equations and return the array of its solution"
LINES = f"{TEXT}\nopen a file and read its lines\n\nparse the arguments of a command line\nzzz qqq\n"


def trainings() -> list[Step]:
    """Models of all kinds; each is trained by itself."""
    made = {
        "py": "py",
        "py-default": "py --preset fast",
        "py-accurate": "py --preset accurate --epochs 4 --hidden 64 --dim 64",
        "py-json": "py --json",
        "py-csv": "py.csv",
        "py-tsv": "py.tsv",
        "py-parquet": "py.parquet",
        "py-fasttext": "py.fasttext.txt",
        "py-several": "py/train.jsonl more.jsonl",
        "py-plain": "plain",
        "py-columns": "columns.csv --text-column body --label-column tags --label-separator |",
        "py-members": "py --members 3",
        "py-index": "py --keep-index",
        "py-paper": "py --preset paper --epochs 2 --dim 64 --hidden 32",
        "py-authors": "py --preset authors --epochs 2 --dim 64 --hidden 32",
        "py-chars": "py --char-ngrams 3,4 --min-df 2 --max-features 3000",
        "py-cnn": "py --encoder cnn --embedding 16 --max-words 20 --epochs 2",
        "py-lstm": "py --encoder lstm --embedding 16 --max-words 20 --epochs 2",
        "py-transformer": "py --encoder transformer --embedding 16 --max-words 20 --epochs 2",
        "py-fc": "py --head fc",
        "py-hrr": "py --head hrr",
        "py-uris": "uris.jsonl --names subjects.tsv",
        "py-feedback": "py --feedback log.jsonl",
        "py-unheld": "py --validation 0",
        "py-patience": "py --patience 1 --metric P@1 --no-join",
        "py-precision": "py --for precision=0.9",
        "py-int8": "py --store int8",
        "py-int4": "py --store int4 --remember 0",
        "py-bf16": "py --store bf16 --head chrr --codebook independent",
        "dense": "dense",
        "dense-members": "dense --members 2 --head chrr-half --scaling standard",
        "svm": "made.svm",
        "svm-default": "made.svm --preset fast --epochs 3",
        "bib": "bib",
        "bib-default": "bib --preset fast --epochs 3",
        "bib-members": "bib --members 3 --codebook two-phase --store int8",
    }
    own = ("--preset", "--epochs", "--validation", "--dim", "--hidden")
    return [
        Step(
            f"train-{name}",
            # What a set-up says by itself is not said twice.
            f"train {words} --model {name} "
            + ("--device cpu" if "--preset" in words else _but(SMALL, *(each for each in own if each in words))),
            files=(f"{name}/MODEL_CARD.md", f"{name}/config.json") if name in ("py", "py-members", "svm") else (),
        )
        for name, words in made.items()
    ]


def _but(words: str, *left_out: str) -> str:
    each = words.split()
    return " ".join(
        f"{name} {value}" for name, value in zip(each[::2], each[1::2], strict=True) if name not in left_out
    )


#: What is done with models, with data and by itself: names and commands.
USES = f"""
datasets-list: datasets list
datasets-list-json: datasets list --json
datasets-info-json: datasets info py --json
predict-stdout: predict py py/test.jsonl
predict-k: predict py py/test.jsonl -k 12 --threshold 0
predict-threshold: predict py py/test.jsonl --threshold 0.05
predict-favor-rare: predict py py/test.jsonl --favor-rare 0.7
predict-favor-rare-threshold: predict py py/test.jsonl --favor-rare 1 --threshold 0.01
predict-memory: predict py py/test.jsonl --memory 100KB
predict-plain: predict py plain --threshold 0
predict-plain-file: predict py plain/0.txt --threshold 0 -k 2
predict-several: predict py plain/0.txt py.csv more.jsonl -k 1 --threshold 0
predict-column: predict py columns.csv --text-column body -k 2
evaluate: evaluate py py
evaluate-json: evaluate py py --json
evaluate-depths: evaluate py py -k 1,2,10
evaluate-threshold: evaluate py py --threshold 0.2
evaluate-unheld: evaluate py-unheld py
evaluate-favor-rare: evaluate py py --favor-rare 1 --json
evaluate-plot: evaluate py py --plot curve.png
evaluate-unknown: evaluate py-plain py
info: info py
info-json: info py --json
info-json-members: info py-members --json
info-verify: info py --verify
info-plot: info py --plot history.png
info-near: info py --near 'kind: function'
info-near-json: info py --near 'kind: function' --json
explain: explain py '{TEXT}'
explain-json: explain py '{TEXT}' --json -k 2
explain-label: explain py '{TEXT}' --label 'kind: function' --label 'kind: class'
explain-members: explain py-members '{TEXT}'
explain-chars: explain py-chars '{TEXT}' -k 1
explain-row: explain dense dense --row 3
explain-row-svm: explain svm made.svm --row 2 --json
explain-similar: explain py-index '{TEXT}' --similar 3
explain-similar-json: explain py-index '{TEXT}' --similar 3 --json
explain-hrr: explain py-hrr '{TEXT}'
explain-fc: explain py-fc '{TEXT}'
compress: compress py --output py-small
compress-json: compress py --loss 5 --output py-loss --json
compress-size: compress py --size 1500000 --output py-size
compress-unit: compress py-members --size 1.05MB --output py-unit --json
compress-store: compress py --store int8 --output py-stored
compress-data: compress svm --data made.svm --loss 1
compress-unheld: compress py-unheld --loss 1 --output py-unheld-small --json
compress-predict: predict py-small py/test.jsonl
compress-info: info py-small
compress-evaluate: evaluate py-loss py --json
export-json: export py again.onnx --json
export-table: export py-bf16 bf16.onnx --large-table
feedback-list: feedback list log.jsonl
feedback-list-json: feedback list log.jsonl --all --json
continue-predict: predict py-more py/test.jsonl more.jsonl
continue-info: info py-more
continue-options-predict: predict py-more2 py/test.jsonl
overwrite-predict: predict py-over py/test.jsonl
resume-finished: train py --model py --resume
reproduce-json: reproduce stability --quick --output pages2 --json
demo: demo --json --device cpu
"""
#: Models, and the data that is tagged with them.
TAGGED = {
    "py": "default accurate members paper authors chars cnn lstm transformer fc hrr uris feedback unheld patience "
    "precision int8 int4 bf16 plain columns parquet several",
    "dense": "dense dense-members",
    "made.svm": "svm svm-default",
    "bib": "bib bib-default bib-members",
}


def uses() -> Iterator[Step]:
    """What is done with models, with data and by itself."""
    yield from shown()
    yield from changes()
    for line in USES.strip().splitlines():
        name, _, words = line.partition(": ")
        yield Step(name, words)
    for data, models in TAGGED.items():
        for each in models.split():
            model = f"py-{each}" if data == "py" else each
            yield Step(f"predict-of-{model}", f"predict {model} {data} -k 4")
            yield Step(f"evaluate-of-{model}", f"evaluate {model} {data} --json")
            yield Step(f"info-of-{model}", f"info {model}")
    for data in ("py", "py.csv", "dense", "made.svm", "bib", "plain", "uris.jsonl"):
        yield Step(f"datasets-info-{data}", f"datasets info {data}")
    for command in HELPED:
        yield Step(f"help-{command.replace(' ', '-') or 'all'}", f"{command} --help")


def shown() -> Iterator[Step]:
    """Commands that read or write something, and those on a terminal."""
    inputs = "py/test.jsonl"
    yield Step("predict-lines", "predict py - -k 3", LINES)
    yield Step(
        "predict-stdin-jsonl", "predict py -", '{"text": "sort a list", "id": "a"}\n{"text": "", "id": "b"}\n'
    )
    yield Step("predict-stdin-csv", "predict py -", "id,text\n1,sort a list\n2,open a file\n")
    yield Step("predict-stdin-empty", "predict py -", "")
    yield Step("explain-stdin", "explain py -", TEXT)
    for form in ("jsonl", "csv", "tsv", "parquet"):
        yield Step(f"predict-{form}", f"predict py {inputs} --output out.{form}", files=(f"out.{form}",))
    yield Step(
        "predict-k-all", f"predict py {inputs} -k 100000 --threshold 0 --output all.jsonl", files=("all.jsonl",)
    )
    yield Step("predict-resume", f"predict py {inputs} --output out2.csv --resume", files=("out2.csv",))
    yield Step(
        "predict-engine",
        f"predict py {inputs} more.jsonl --engine processes --block-size 4000 --format jsonl --output bulk",
        files=("bulk",),
    )
    yield Step("predict-terminal", f"predict py {inputs}", terminal=True)
    yield Step("predict-terminal-stdin", "predict py - -k 2", LINES, terminal=True)
    yield Step("predict-terminal-json", f"predict py {inputs} --json -k 2", terminal=True)
    yield Step("predict-terminal-uris", "predict py-uris uris.jsonl", terminal=True)
    for form in ("csv", "tsv", "jsonl"):
        yield Step(
            f"evaluate-labels-{form}", f"evaluate py py --per-label labels.{form}", files=(f"labels.{form}",)
        )
    for model in ("py", "py-members", "py-fc", "py-hrr", "dense", "svm"):
        yield Step(f"export-{model}", f"export {model} {model}.onnx -k 3")
    yield Step("feedback-export", "feedback export log.jsonl corrected.jsonl", files=("corrected.jsonl",))
    for name in ("capacity", "stability", "theory"):
        yield Step(f"reproduce-{name}", f"reproduce {name} --quick --output pages", files=(f"pages/{name}.md",))


def changes() -> Iterator[Step]:
    """Commands that train a model further, replace it, or are interrupted and resumed."""
    inputs = "py/test.jsonl"
    yield Step(
        "continue",
        "train more.jsonl --model py-more --continue",
        copy=("py", "py-more"),
        files=("py-more/config.json",),
    )
    yield Step(
        "continue-options",
        "train more.jsonl --model py-more2 --continue --epochs 2 --lr 0.002 --feedback log.jsonl",
        copy=("py-members", "py-more2"),
    )
    yield Step("overwrite", f"train py --model py-over --overwrite {SMALL}", copy=("py-fc", "py-over"))
    slow = (
        "--dim 256 --hidden 512 --epochs 12 --batch-size 16 --first-layer same --lr 0.002 --device cpu --members 2"
    )
    for how, number in (("interrupted", signal.SIGINT), ("killed", signal.SIGKILL)):
        yield Step(f"{how}", f"train py --model py-{how} {slow}", signal=number)
        yield Step(f"{how}-other", f"train py --model py-{how} --resume --dim 32")
        yield Step(f"{how}-again", f"train py --model py-{how} {slow}")
        yield Step(f"{how}-resumed", f"train py --model py-{how} --resume --device cpu", silent=True)
        yield Step(f"{how}-predict", f"predict py-{how} {inputs}")
    yield Step("tune", "tune py --budget 1s --output tuned --preset fast", silent=True)


HELPED = (
    "", "train", "predict", "evaluate", "info", "explain", "compress", "export", "embed", "tune", "serve", "demo",
    "datasets", "datasets list", "datasets info", "datasets fetch", "feedback", "feedback list", "feedback export",
    "reproduce", "reproduce capacity", "reproduce table", "reproduce features",
)  # fmt: skip


#: What is wrong with `circlet train py --model never …`.
WRONG_OPTIONS = """
--head nope
--dim 0
--dim many
--hidden a,b
--hidden 0
--head fc --loss cosine
--head chrr --codebook holographic
--slots 3
--head hrr --slots 300
--dropout 1
--epochs 0
--batch-size 0
--optimizer best
--lr -1
--lr nan
--schedule none
--precision float8
--validation 2.5
--validation -0.1
--members 0
--metric accuracy
--patience 0
--char-ngrams 5,3
--char-ngrams a
--min-df 0
--max-features 0
--for precision=2
--for best
--store int3
--encoder bert
--embedding 7
--encoder transformer --embedding 7
--encoder cnn --keep-index
--device gpu
--device cuda:7
--threads 0
--seed -1
--preset best
--continue
--resume
--split -1
--text-column body
--label-column tags
--names nowhere.tsv
--feedback nowhere.jsonl
--loss none
--activation gelu
--initial zero
--input-dropout 1
--weight-decay -1
--first-layer adam
--remember -1
--unknown 3
--epochs 1.5
"""
#: Other commands that users get wrong.
WRONG = """
trian py --model m
train
train py
train nowhere --model never
train pydcs --model never
train py --model py
train py --model py --resume --seed 3
train py --model py --continue --dim 32
train py --model py --continue --seed 1
train py --model py --continue --overwrite
train bib --model py --continue
train py --model dense --continue
train empty.jsonl --model never
train bad.jsonl --model never
train unlabeled.jsonl --model never
train empty --model never
train py dense --model never
train made.svm py.csv --model never
train py --model py.csv
train bad.svm --model never
train ragged.csv --model never
train dense --model never --scaling most
predict nowhere py
predict py nowhere.jsonl
predict py
predict py.csv py
predict empty py
predict py py -k 0
predict py py -k many
predict py py --threshold 2
predict py py --favor-rare 2
predict py py --memory 5XB
predict py py --memory -5MB
predict py py --output out.doc
predict py py --output empty
predict py py --output no/where/out.jsonl
predict py py --resume
predict py py --engine spark --output bulk2
predict py py --engine processes
predict py py --workers 2
predict py py --format csv
predict py py --block-size 1MB
predict py py --device cuda:9
predict py dense
predict dense py
predict svm bib
predict py bad.jsonl
predict py py --text-column body
predict py empty
predict damaged py
predict cut py
predict foreign py
predict newer py
predict py empty.jsonl
evaluate py py -k 0
evaluate py py -k a
evaluate py py --threshold 3
evaluate py unlabeled.jsonl
evaluate py py --per-label labels.doc
evaluate py py --plot curve.doc
evaluate dense py
evaluate nowhere py
evaluate py nowhere
evaluate py dense
info nowhere
info py --near 'no such label'
info damaged
info cut
info cut --verify
info changed --verify
info foreign
info py --plot history.doc
info py --near 'kind: functoin'
explain py
explain py py --row 100000
explain py text --label nope
explain py text --similar 3
explain dense text
explain py text -k 0
explain py-cnn text
explain dense dense --row -1
compress py --loss -1 --output c1
compress py --loss nan --output c1
compress py --size 0 --output c1
compress py --size many --output c1
compress py --size 10 --output c1
compress py --loss 1 --size 1MB --output c1
compress py --store int4 --size 1MB --output c1
compress py --store int2 --output c1
compress py --store int8 --output dense
compress nowhere
compress py-small --store int2 --output c1
compress py --data dense --output c1
export py x.txt
export py py.onnx
export py x.onnx -k 0
export nowhere x.onnx
export py-cnn x.onnx
export py no/where/x.onnx
tune py --budget 5x --output t1
tune py --budget 0s --output t1
tune py --preset best --output t1
tune nowhere --output t1
tune unlabeled.jsonl --output t1
datasets info nowhere
datasets fetch nowhere
datasets info pydcs
datasets
feedback list nowhere.jsonl
feedback list py.csv
feedback list bad.log
feedback export log.jsonl empty
feedback export nowhere.jsonl out.jsonl
feedback
embed py --sentence-model nowhere --output e1
embed dense --sentence-model empty --output e1
reproduce nothing
reproduce capacity --repetitions 1
reproduce table --quick --data empty --output p1
reproduce stability --seed -1
reproduce
reproduce baselines --quick --device gpu --output p1
serve
serve nowhere
serve py --port 99999999
serve py-cnn py-cnn
serve damaged --port 0
"""


def wrong_options() -> Iterator[Step]:
    """Trainings that fail, and say why."""
    for words in WRONG_OPTIONS.strip().splitlines():
        yield Step(_named(f"wrong-train{words}"), f"train py --model never {words}")


def wrong_commands() -> Iterator[Step]:
    """Other commands that fail, and say why."""
    yield Step("wrong-nothing", "")
    for words in WRONG.strip().splitlines():
        yield Step(_named(f"wrong-{words}"), words.replace("never", "nowhere"))


def _named(words: str) -> str:
    return re.sub(r"[^\w.]+", "-", words)


# --- Data --------------------------------------------------------------------------------------------------------


def make_data(work: Path, bibtex: Path | None) -> None:
    """Small sets of every kind, and broken ones."""
    import circlet

    pydocs = circlet.load_dataset("pydocs")

    def rows(split: Any, indices: range) -> list[dict[str, Any]]:
        names = pydocs.label_names or []
        return [
            {
                "id": f"d{i}",
                "text": split.texts[i],
                "labels": [names[y] for y in split.Y.indices[split.Y.indptr[i] : split.Y.indptr[i + 1]]],
            }
            for i in indices
        ]

    # Every 20th, because neighbors are alike.
    train, test = rows(pydocs.train, range(0, 6000, 20)), rows(pydocs.test, range(0, 600, 15))
    more = rows(pydocs.train, range(10, 1210, 20))
    for folder in ("py", "plain", "dense", "bib", "empty"):
        (work / folder).mkdir()
    _write_lines(work / "py/train.jsonl", train)
    _write_lines(work / "py/test.jsonl", test)
    _write_lines(work / "more.jsonl", [{**more[0], "labels": ["a new label", "kind: function"]}, *more[1:]])
    _write_lines(work / "unlabeled.jsonl", [{"text": "alone"}, {"text": "too"}])
    _write_table(work / "py.csv", train[:120], ",", "text", "labels", ";")
    _write_table(work / "py.tsv", train[:120], "\t", "text", "labels", ";")
    _write_table(work / "columns.csv", train[:120], ",", "body", "tags", "|")
    (work / "py.fasttext.txt").write_text(
        "".join(
            " ".join(["__label__" + label.replace(" ", "_") for label in row["labels"]] + row["text"].split())
            + "\n"
            for row in train[:120]
        )
    )
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        pass
    else:
        parquet.write_table(pa.Table.from_pylist(train[:120]), work / "py.parquet")
    for i, row in enumerate(train[:60]):
        (work / f"plain/{i}.txt").write_text(row["text"])
        (work / f"plain/{i}.key").write_text("".join(f"{label}\n" for label in row["labels"]))
    labels = sorted({label for row in train for label in row["labels"]})
    uri = {label: f"http://example.org/{i}" for i, label in enumerate(labels)}
    _write_lines(
        work / "uris.jsonl", [{**row, "labels": [uri[label] for label in row["labels"]]} for row in train[:120]]
    )
    (work / "subjects.tsv").write_text("".join(f"<{uri[label]}>\t{label}\n" for label in labels[:-3]))
    _write_feedback(work / "log.jsonl", train, labels)
    _write_matrices(work)
    if bibtex is not None:
        _slice_bibtex(work, bibtex)
    for name, content in {
        "empty.jsonl": "",
        "bad.jsonl": '{"text": "fine", "labels": ["a"]}\n{"text": "not fine", "labels": [\n',
        "bad.svm": "0 1:0.5\n1 2:x\n",
        "ragged.csv": 'text,labels\nfine,a\nnot,fine,b\n"open,a\n',
        "bad.log": '{"circlet_feedback": 1}\n{"id": 3}\n{"id": "b", "time": "t", "undo": "a"}\n',
    }.items():
        (work / name).write_text(content)


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _write_table(path: Path, rows: list[dict[str, Any]], comma: str, text: str, labels: str, between: str) -> None:
    import csv

    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=comma)
        writer.writerow(("id", text, labels))
        for row in rows:
            writer.writerow((row["id"], " ".join(row["text"].split()), between.join(row["labels"])))


def _write_feedback(path: Path, rows: list[dict[str, Any]], labels: list[str]) -> None:
    records: list[dict[str, Any]] = [{"circlet_feedback": 1}]
    for i in range(12):
        accepted = [*rows[i]["labels"][:1], labels[(7 * i) % len(labels)]]
        records.append(
            {
                "id": f"entry-{i}", "time": f"2026-01-01T00:00:{i:02}+00:00", "text": rows[2 * i]["text"],
                "accepted": sorted(set(accepted)), "rejected": [labels[-1 - i]], "version": "1",
            }
        )  # fmt: skip
    records.append({"id": "undone", "time": "2026-01-01T00:01:00+00:00", "undo": "entry-3"})
    _write_lines(path, records)


def _write_matrices(work: Path) -> None:
    X, Y = rows_and_labels("dense", 240, 24, 17, seed=1)
    for part, start, end in (("trn", 0, 200), ("tst", 200, 240)):
        np.save(work / f"dense/X.{part}.npy", X[start:end])
        sp.save_npz(work / f"dense/Y.{part}.npz", Y[start:end])
    X, Y = rows_and_labels("sparse", 240, 60, 23, seed=2)
    with (work / "made.svm").open("w") as file:
        for i in range(X.shape[0]):
            row = X[i]
            entries = " ".join(
                f"{column + 1}:{value:.5g}" for column, value in zip(row.indices, row.data, strict=True)
            )
            file.write(f"{','.join(map(str, Y[i].indices))} {entries}\n")


def _slice_bibtex(work: Path, bibtex: Path) -> None:
    for part, n in (("trn", 600), ("tst", 150)):
        for matrix in "XY":
            rows = sp.load_npz(bibtex / f"{matrix}.{part}.npz").tocsr()[:n]
            sp.save_npz(work / f"bib/{matrix}.{part}.npz", rows)


def rows_and_labels(kind: str, n: int, n_features: int, n_labels: int, seed: int) -> tuple[Any, sp.csr_matrix]:
    """Rows of which the labels can be learned: each label is in documents with certain features."""
    random = np.random.default_rng(seed)
    Y = sp.random(n, n_labels, 2.5 / n_labels, format="csr", random_state=seed, dtype=np.float32)
    Y = sp.csr_matrix(Y + sp.csr_matrix((np.ones(n), (np.arange(n), np.arange(n) % n_labels)), (n, n_labels)))
    Y.data[:] = 1
    links = sp.random(n_labels, n_features, 0.15, format="csr", random_state=seed + 1)
    rows = Y @ links + 0.1 * sp.random(n, n_features, 0.1, format="csr", random_state=seed + 2)
    if kind == "dense":
        return (rows.toarray() + 0.05 * random.standard_normal(rows.shape)).astype(np.float32), Y.astype(
            np.float32
        )
    rows = sp.csr_matrix(rows, dtype=np.float32)
    rows.sort_indices()
    return rows, Y.astype(np.float32)


def break_models(work: Path) -> None:
    """Copies of a model with a fault each."""
    for name in ("damaged", "cut", "changed", "newer"):
        shutil.copytree(work / "py-csv", work / name)
    (work / "foreign").mkdir()
    (work / "foreign/config.json").write_text('{"architectures": ["BertModel"]}')
    config = (work / "damaged/config.json").read_text()
    (work / "damaged/config.json").write_text(config[: len(config) // 2])
    weights = work / "cut/weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    content = bytearray((work / "changed/weights.safetensors").read_bytes())
    content[-5] ^= 1
    (work / "changed/weights.safetensors").write_bytes(content)
    about = json.loads((work / "newer/config.json").read_text())
    about["format"] = 10_000
    (work / "newer/config.json").write_text(json.dumps(about))


# --- Recording ---------------------------------------------------------------------------------------------------

ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "PYTHONHASHSEED": "0", "PYTHONIOENCODING": "utf-8", "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "100",
    "ORT_DISABLE_TELEMETRY": "1",
}  # fmt: skip


def record(folder: Path, data: Path | None, only: str | None) -> None:
    """Run everything, or the commands with these names, and write what came of it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # processes in the background have it ignored
    os.environ |= ENVIRONMENT
    found = [str(Path(each).resolve()) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    os.environ["PYTHONPATH"] = os.pathsep.join(found)
    work, commands = folder.resolve() / "work", folder / "commands"
    bibtex = None if data is None or not (data / "bibtex").is_dir() else data / "bibtex"
    if only is None:
        shutil.rmtree(folder, ignore_errors=True)
        work.mkdir(parents=True)
        make_data(work, bibtex)
        if bibtex is None:
            print("without bibtex: found no --data with a folder of this name")
    commands.mkdir(exist_ok=True)
    os.environ |= {"MPLCONFIGDIR": str(work / ".matplotlib"), "HOME": str(work / ".home")}
    lanes = [*_lanes(work)]
    if only is not None:
        lanes = [[[step for step in each if fnmatch.fnmatch(step.name, only)] for each in lane] for lane in lanes]

    def run(steps: list[Step]) -> None:
        for step in steps:
            if bibtex is None and "bib" in re.split(r"[-\s]", step.words):
                continue
            (commands / f"{step.name}.txt").write_text(carried_out(step, work), encoding="utf-8")

    for lane in lanes:  # those in a lane need each other's models, and those of the lanes before
        with ThreadPoolExecutor(2) as pool:
            parts: list[Future[Any]] = [pool.submit(run, steps) for steps in lane]
            if lane is lanes[0] and (only is None or only == "logits"):
                words = [sys.executable, str(Path(__file__).resolve()), "logits", str(folder)]
                parts.append(pool.submit(subprocess.run, words, check=True))
            for part in parts:
                part.result()
        if lane is lanes[0] and only is None:
            break_models(work)
    (folder / "bytes.json").write_text(json.dumps(dict(_models(work)), indent=1, sort_keys=True))


def _lanes(work: Path) -> Iterator[list[list[Step]]]:
    """Steps that come one after the other, beside others; each lane begins when the one before is over."""
    yield [[step] for step in trainings()]
    groups: dict[str, list[Step]] = {}
    for step in uses():
        groups.setdefault(step.name.partition("-")[0], []).append(step)
    yield [*groups.values()]
    yield [[*wrong_options()], [*wrong_commands()]]


def carried_out(step: Step, work: Path) -> str:
    """What a command prints and writes, ready to be compared."""
    if step.copy is not None:
        source, target = (work / each for each in step.copy)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
    words = [sys.executable, "-m", "circlet", *shlex.split(step.words)]
    if step.terminal:
        code, out, err = _on_terminal(words, step.stdin or "", work)
    elif step.signal:
        code, out, err = _interrupted(words, step.signal, work)
    else:
        done = subprocess.run(words, input=(step.stdin or "").encode(), cwd=work, capture_output=True, check=False)
        code, out, err = done.returncode, done.stdout.decode(), done.stderr.decode()
    parts = [f"$ circlet {step.words}", f"[exit {code}]"]
    if step.silent and code == 0:
        out = err = ""
    for name, content in (("stdout", out), ("stderr", err)):
        if content:
            parts.append(f"--- {name}\n{normalized(content, work)}")
    for name in step.files:
        path = work / name
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if each.is_file() or not each.exists():
                parts.append(f"--- {each.relative_to(work)}\n{normalized(_content(each), work)}")
    return "\n".join(parts) + "\n"


def _content(path: Path) -> str:
    if not path.exists():
        return "[missing]"
    if path.suffix == ".parquet":
        from pyarrow import parquet

        table = parquet.read_table(path)
        return f"{table.schema.remove_metadata()}\n" + "\n".join(map(json.dumps, table.to_pylist()))
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"[{len(content)} bytes]"


def _on_terminal(words: list[str], stdin: str, work: Path) -> tuple[int, str, str]:
    import pty

    screen, terminal = pty.openpty()
    chunks: list[bytes] = []
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=terminal, stderr=subprocess.PIPE, cwd=work
    ) as process:
        os.close(terminal)
        assert process.stdin is not None
        process.stdin.write(stdin.encode())
        process.stdin.close()
        with contextlib.suppress(OSError):  # Linux says so when the last process has closed the terminal
            while chunk := os.read(screen, 1 << 16):
                chunks.append(chunk)
        assert process.stderr is not None
        err = process.stderr.read().decode()
    os.close(screen)
    return process.returncode, b"".join(chunks).decode().replace("\r\n", "\n"), err


def _interrupted(words: list[str], number: int, work: Path) -> tuple[int, str, str]:
    """Interrupt a training when it has told of its second epoch; how far it came is left out."""
    with subprocess.Popen(words, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if re.search(r"\bepoch +2/12", line):
                process.send_signal(number)
                break
        lines += [line for line in process.stderr if not re.search(r"\bepoch +\d+/12", line)]
        out = process.stdout.read()
    return process.returncode, out, re.sub(r"(epoch|after) +\d+", r"\1 <n>", "".join(lines))


_PLACEHOLDERS = [
    (r"\b[0-9a-f]{64}\b", "<digest>"),
    (r"\bprocess \d+ on [^\s,]+", "process <n> on <host>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)?", "<time>"),
    (r"\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d)?)?", "<date>"),
    (r'("[a-z_]*(seconds|_ms|per_second|speed|elapsed)[a-z_]*": )[-+.\de]+', r"\1<time>"),
    # The history has times, so that its size and all that counts it differ.
    (r'("history(?:-\d+)?\.json"(?:,\s+"bytes")?: )\d+', r"\1<n>"),
    (r"(bytes, (?:history|config|total)[\w.-]* +)[\d,]+ *", r"\1<n>"),
    (r'("changed": )\d+', r"\1<time>"),
    (r"\b(part-\d+-)[0-9a-f]{8}\b", r"\1<digest>"),
    (r"\b\d+(?:\.\d+)?( ?)(ms|s|seconds|min|minutes|h)\b(?!-)", r"<time>\1\2"),
    (r"\b\d[\d,.]*( (documents|texts|rows|docs|lines)?(/s| per second))", r"<speed>\1"),
]


def normalized(text: str, work: Path) -> str:
    """The text without what differs from run to run."""
    return masked(text.replace(str(work), "<work>").replace(str(work.resolve()), "<work>").rstrip("\n"))


def masked(text: str) -> str:
    """The text with placeholders; once more changes nothing."""
    for pattern, placeholder in _PLACEHOLDERS:
        text = re.sub(pattern, placeholder, text)
    return text


def _models(work: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for config in sorted(work.glob("*/config.json")):
        files = {}
        for path in sorted(config.parent.iterdir()):
            if path.is_file() and path.name != ".lock":
                content = path.read_bytes()
                if path.suffix != ".safetensors":
                    content = normalized(_content(path), work).encode()
                files[path.name] = [len(content), hashlib.sha256(content).hexdigest()[:12]]
        yield config.parent.name, files


# --- Scores ------------------------------------------------------------------------------------------------------

LOSSES = ("bce", "mean-bce", "cosine", "absolute-cosine", "softmax")
#: Codebooks and losses that go together with each head.
COMBINATIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(
        ("chrr-amplitude", "chrr", "chrr-half", "chrr-sin", "chrr-tanh"),
        (("spectral", "independent", "four-phase", "two-phase"), LOSSES),
    ),
    "hrr": (("holographic",), LOSSES),
    "fc": (("auto",), ("bce", "mean-bce", "softmax")),
}
STORES = ("float32", "bf16", "int8", "int4")


#: Settings of networks that are trained in a moment, all the same.
TINY: dict[str, Any] = {
    "dim": 16, "hidden": (12,), "epochs": 2, "batch_size": 16, "first_layer": "same", "lr": 0.01, "validation": 0,
    "dropout": 0.1, "device": "cpu",
}  # fmt: skip


def record_logits(folder: Path) -> None:
    """Train small models of every kind in this process, and keep what they say about some rows."""
    import warnings

    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    models = folder / "work/logits"
    found = {**_stored(models), **_set_up(models), **_measured()}
    shutil.rmtree(models)
    np.savez_compressed(folder / "logits.npz", **found)


def _said(name: str, tagger: Any, rows: Any, **how: Any) -> dict[str, Any]:
    labels, scores = tagger.suggest(rows, **{"k": 4, **how})
    said = {f"{name}/labels": labels.astype(str), f"{name}/scores": scores.astype(np.float32)}
    return said if how else {**said, f"{name}/logits": np.asarray(tagger.decision_function(rows), np.float32)}


def _stored(models: Path) -> dict[str, Any]:
    """Every head × codebook × loss that goes together, stored in every way."""
    from circlet import CircletClassifier, load

    kept: dict[str, Any] = {}
    X, Y = rows_and_labels("sparse", 80, 30, 17, seed=3)
    for head, (codebooks, losses) in COMBINATIONS.items():
        for codebook, loss, members in itertools.product(codebooks, losses, (1, 3)):
            name = f"{head}/{codebook}/{loss}/{members}"
            own = {"head": head, "codebook": codebook, "loss": loss, "members": members}
            fitted = CircletClassifier(**{**TINY, **own}).fit(X, Y)
            kept |= _said(f"{name}/fitted", fitted, X[:12])
            for store in STORES:
                shutil.rmtree(models, ignore_errors=True)
                fitted.save(models, store)
                kept |= _said(f"{name}/{store}/torch", CircletClassifier.load(models), X[:12])
                kept |= _said(f"{name}/{store}/runtime", load(models), X[:12])
    return kept


def _cases() -> Iterator[tuple[str, dict[str, Any], Any, Any]]:
    """Other settings, with documents and labels."""
    X, Y = rows_and_labels("sparse", 80, 30, 17, seed=3)
    dense, Z = rows_and_labels("dense", 80, 20, 9, seed=4)
    texts, tags = _texts()
    decided = {"device": "cpu", "epochs": 3, "dim": 32, "hidden": (16,)}
    reads = {**TINY, "embedding": 8, "max_words": 12}
    yield "sparse decided", {"device": "cpu", "epochs": 3}, X, Y
    yield "sparse accurate", {**decided, "preset": "accurate"}, X, Y
    yield "dense decided", decided, dense, Z
    yield "texts decided", decided, texts, tags
    yield "texts chars", {**TINY, "char_ngrams": (2, 3), "max_features": 300}, texts, tags
    yield "texts members", {**decided, "members": 2, "keep_index": True}, texts, tags
    for encoder in ("cnn", "lstm", "transformer"):
        yield f"texts {encoder}", {**reads, "encoder": encoder}, texts, tags
    yield "single", TINY, dense, np.arange(80) % 5
    yield "two layers", {**TINY, "hidden": (12, 10), "activation": "leaky-relu", "initial": "torch"}, X, Y
    yield "slots", {**TINY, "slots": 40}, X, Y
    yield "top k", {**TINY, "top_k": 2}, X, Y
    yield "threshold", {**TINY, "threshold": 0.3}, X, Y
    yield "index", {**TINY, "keep_index": True}, X, Y
    for scaling in ("none", "l2", "sqrt", "tfidf"):
        yield f"scaling {scaling}", {**TINY, "scaling": scaling}, X, Y
    yield "scaling standard", {**TINY, "scaling": "standard"}, dense, Z
    for optimizer, first in itertools.product(("adamw", "adam", "adadelta", "sgd"), ("same", "sgd")):
        yield f"{optimizer} {first}", {**TINY, "optimizer": optimizer, "first_layer": first}, X, Y
    for schedule in ("constant", "step"):
        yield f"schedule {schedule}", {**TINY, "schedule": schedule}, X, Y
    yield "decay", {**TINY, "weight_decay": 0.01, "input_dropout": 0.2}, X, Y
    held_out = {"validation": 0.2, "patience": 1, "join": False, "threshold_for": "recall=0.8"}
    yield "held out", {**TINY, **held_out}, X, Y


def _set_up(models: Path) -> dict[str, Any]:
    """What other settings give, and all ways to ask for labels."""
    from circlet import CircletClassifier, load

    kept: dict[str, Any] = {}
    for case, parameters, documents, labels in _cases():
        fitted, some = CircletClassifier(**parameters).fit(documents, labels), documents[:12]
        shutil.rmtree(models, ignore_errors=True)
        fitted.save(models)
        taggers: dict[str, Any] = {"fitted": fitted, "torch": CircletClassifier.load(models)}
        if "encoder" not in parameters:
            taggers["runtime"] = load(models)
        for kind, tagger in taggers.items():
            name, predicted = f"{case}/{kind}", tagger.predict(some)
            kept |= _said(name, tagger, some)
            kept |= _said(f"{name}/rare", tagger, some, favor_rare=0.8, allowed=list(tagger.classes_[::2]))
            kept |= _said(f"{name}/cut", tagger, some, threshold="auto")
            kept[f"{name}/predicted"] = predicted.toarray() if sp.issparse(predicted) else predicted
            kept[f"{name}/probabilities"] = np.asarray(tagger.predict_proba(some), np.float32)
            if parameters.get("keep_index"):
                kept[f"{name}/similar"] = tagger.similar(some, k=3)[0].astype(str)
        kept[f"{case}/score"] = np.array(fitted.score(documents, labels), np.float32)
        if case in ("sparse decided", "texts decided", "texts members"):
            fitted.partial_fit(documents[:40], labels[:40])
            kept |= _said(f"{case}/further", fitted, some)
    return kept


def _measured() -> dict[str, Any]:
    from circlet.metrics import inverse_propensity, precision_at_k, psp_at_k

    _, Y = rows_and_labels("sparse", 80, 30, 17, seed=3)
    ranked = np.argsort(-rows_and_labels("dense", 80, 17, 9, seed=5)[0], axis=1)
    precision = precision_at_k(Y, ranked, k=(1, 3, 5))
    psp = psp_at_k(Y, ranked, inverse_propensity(Y), k=(1, 3, 5))
    return {"metrics": np.array([*precision.values(), *psp.values()], np.float32)}


def _texts() -> tuple[list[str], list[list[str]]]:
    topics = {
        "animal": "fox wolf bear deer hare lynx",
        "vehicle": "car truck tram van train lorry",
        "food": "bread cheese apple soup rice pasta",
        "weather": "rain snow wind storm fog hail",
    }
    names, texts, tags = sorted(topics), [], []
    for i in range(80):
        chosen = sorted({names[i % 4], names[(i // 4) % 4]})
        words = [topics[name].split()[(i + j) % 6] for name in chosen for j in range(2)]
        texts.append(f"the {' and the '.join(words)}")
        tags.append(chosen)
    return texts, tags


# --- Comparing ---------------------------------------------------------------------------------------------------


def compare(before: Path, after: Path, *, full: bool) -> int:
    """Print what differs; how many differences are neither tiny nor expected."""
    found = {
        "commands": _compare_commands(before / "commands", after / "commands", full=full),
        "logits": _compare_logits(before / "logits.npz", after / "logits.npz"),
        "bytes": _compare_bytes(before / "bytes.json", after / "bytes.json"),
    }
    print("differences: " + ", ".join(f"{name} {number}" for name, number in found.items()))
    return sum(found.values())


def _compare_commands(before: Path, after: Path, *, full: bool) -> int:
    names = [{path.stem for path in folder.glob("*.txt")} for folder in (before, after)]
    for folder, only in ((before, names[0] - names[1]), (after, names[1] - names[0])):
        if only:
            print(f"only in {folder}: {', '.join(sorted(only))}")
    count, nearly, expected = len(names[0] ^ names[1]), [], dict[str, list[str]]()
    for name in sorted(names[0] & names[1]):
        texts = [masked((folder / f"{name}.txt").read_text(encoding="utf-8")) for folder in (before, after)]
        if texts[0] == texts[1]:
            continue
        left = [*_changed(*(text.splitlines() for text in texts))]
        if not left:
            nearly.append(name)
            continue
        reasons = set()
        rest = []
        for sign, line in left:
            why = [
                reason for those, look, reason in EXPECTED if re.fullmatch(those, name) and re.search(look, line)
            ]
            reasons.update(why[:1])
            rest += [] if why else [f"  {sign} {line}"]
        for reason in reasons:
            expected.setdefault(reason, []).append(name)
        if rest:
            count += 1
            print(f"\n{name}: {texts[0].splitlines()[0]}")
            print("\n".join(rest if full or len(rest) <= 12 else [*rest[:12], f"  … {len(rest) - 12} more lines"]))
    if nearly:
        print(f"\nnumbers within {TOLERANCE:g}: {', '.join(nearly)}")
    for reason, where in expected.items():
        print(f"\nexpected, {reason}: {', '.join(where)}")
    return count


_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])")


def _changed(before: list[str], after: list[str]) -> Iterator[tuple[str, str]]:
    """The lines that differ by more than numbers that are nearly the same."""
    shapes = [[re.sub(r" +|─+", " ", _NUMBER.sub("#", line)) for line in lines] for lines in (before, after)]
    for kind, i, j, m, n in difflib.SequenceMatcher(None, shapes[0], shapes[1], autojunk=False).get_opcodes():
        if kind == "equal":
            for old, new in zip(before[i:j], after[m:n], strict=True):
                if not _near(old, new):
                    yield from (("-", old), ("+", new))
        else:
            yield from (("-", line) for line in before[i:j])
            yield from (("+", line) for line in after[m:n])


def _near(old: str, new: str) -> bool:
    """Whether numbers of two lines are nearly the same; those that are rounded to other digits are, as rounded."""

    def near(a: str, b: str) -> bool:
        shown = [len(each.partition("e")[0].partition(".")[2]) for each in (a, b)]
        last = 0.51 * 10.0 ** -min(shown) if min(shown) >= 1 and shown[0] != shown[1] else TOLERANCE
        return math.isclose(float(a), float(b), rel_tol=TOLERANCE, abs_tol=max(last, TOLERANCE))

    return all(map(near, *(_NUMBER.findall(line) for line in (old, new))))


def _compare_logits(before: Path, after: Path) -> int:
    with np.load(before) as old, np.load(after) as new:
        count = len(set(old) ^ set(new))
        for name in sorted(set(old) ^ set(new)):
            print(f"logits of {name}: only in {before if name in old else after}")
        for name in sorted(set(old) & set(new)):
            if problem := _apart(old[name], new[name], name, old):
                known = any(re.fullmatch(those, "logits") and re.search(look, name) for those, look, _ in EXPECTED)
                count += not known
                print(f"logits of {name}: {problem}{', as expected' if known else ''}")
    return count


def _apart(old: Any, new: Any, name: str, all_old: Any) -> str:
    if old.shape != new.shape:
        return f"shapes {old.shape} and {new.shape}"
    if old.dtype.kind != "f":
        differ = old != new
        if name.endswith("/labels"):  # labels of equal scores may change places
            scores = all_old[f"{name.removesuffix('labels')}scores"]
            gaps = np.abs(np.diff(scores, axis=1, append=scores[:, -1:]))
            differ &= np.minimum(gaps, np.roll(gaps, 1, axis=1)) > 2 * TOLERANCE
        return f"{int(differ.sum())} of {differ.size} values differ" if differ.any() else ""
    alike = np.isclose(old, new, rtol=0, atol=TOLERANCE, equal_nan=True)  # −∞ is where no label is
    return (
        "" if alike.all() else f"{int((~alike).sum())} of {old.size} apart, by up to {np.abs(old - new).max():.2g}"
    )


def _compare_bytes(before: Path, after: Path) -> int:
    old, new = (json.loads(path.read_text()) for path in (before, after))
    sizes: dict[str, list[tuple[int, int]]] = {}
    count = 0
    for model in sorted(set(old) | set(new)):
        files = [each.get(model, {}) for each in (old, new)]
        if set(files[0]) != set(files[1]):
            count += 1
            missing, added = sorted(set(files[0]) - set(files[1])), sorted(set(files[1]) - set(files[0]))
            print(f"files of {model}: without {missing}, new {added}")
        for name in set(files[0]) & set(files[1]):
            if files[0][name] != files[1][name]:
                sizes.setdefault(name, []).append((files[0][name][0], files[1][name][0]))
    for name, pairs in sorted(sizes.items()):
        a, b = (sum(each) for each in zip(*pairs, strict=True))
        print(f"{name}: other content in {len(pairs)} models, {a:,} -> {b:,} bytes ({b / max(a, 1) - 1:+.2%})")
        count += not any(re.fullmatch(those, "bytes") and re.search(look, name) for those, look, _ in EXPECTED)
    return count


def main() -> int:
    """Parse, record, compare."""
    parser = argparse.ArgumentParser(prog="python benchmarks/golden.py", description="Record what circlet does.")
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run everything, and keep what came of it")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--data", type=Path, help="a folder with a folder bibtex")
    recording.add_argument("--only", help="only commands with such names, or logits, in a recorded folder")
    commands.add_parser("logits").add_argument("folder", type=Path)
    comparing = commands.add_parser("compare", help="print what differs")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--full", action="store_true", help="every line that differs")
    given = parser.parse_args()
    if given.command == "record":
        record(given.folder, given.data, given.only)
    elif given.command == "logits":
        record_logits(given.folder)
    else:
        return int(compare(given.before, given.after, full=given.full) > 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
