"""circlet beside Annif's own backends, inside Annif: the same vocabulary, documents and commands for all.

    pip install --constraint constraints.txt '.[annif]' 'annif[omikuji,fasttext]'
    python benchmarks/annif_backends.py --data FOLDER

FOLDER is yso-finna-en: titles with subjects of the General Finnish Ontology. Each project is trained and evaluated
by Annif's own commands, one after the other; times are those of whole commands, start included. Configurations are
the examples of Annif's wiki, and circlet's are its defaults: nothing is chosen here. `--held-out` evaluates on
other rows of train instead, for choosing defaults, and saves nothing.

(Not `annif.py`: a script's folder comes first when Python looks for the module `annif`.)
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from circlet import files
from circlet.data import load_dataset
from circlet.data.dataset import Split
from circlet.data.records import Record, write_records
from circlet.provenance import provenance
from circlet.report import Table

WORDS = "analyzer=snowball(english)"
#: What each project has besides a name, a language and a vocabulary.
PROJECTS = {
    "circlet": ["backend=circlet"],
    "circlet, snowball": ["backend=circlet", WORDS],
    "circlet, fast": ["backend=circlet", "preset=fast"],
    "omikuji, Parabel": ["backend=omikuji", WORDS],
    "omikuji, Bonsai": ["backend=omikuji", WORDS, "cluster_balanced=False", "cluster_k=100", "max_depth=3"],
    "fastText": ["backend=fasttext", WORDS, "dim=500", "lr=0.25", "epoch=30", "loss=hs", "chunksize=24"],
}
METRICS = ("F1@5", "NDCG")
PACKAGES = ("annif", "omikuji", "fasttext-numpy2", "nltk")
PAGE = Path(__file__).parents[1] / "docs/annif.md"
COMMAND = "python benchmarks/annif_backends.py --data yso-finna-en"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of yso-finna-en")
    parser.add_argument("--train", type=int, default=20_000, help="documents to train on")
    parser.add_argument("--test", type=int, default=2_000, help="documents to evaluate on")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this project; may be repeated")
    parser.add_argument("--held-out", action="store_true", help="evaluate on rows of train, and save nothing")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    files.prepare_folder(options.out)
    names = options.only or list(PROJECTS)
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        labels = write_corpus(work, options)
        configure(work)
        annif(work, "load-vocab", "yso", "vocabulary.tsv", "--language", "en")
        found = [measured(work, name) for name in names]
    if options.held_out:
        return
    result = {
        "benchmark": "annif",
        "provenance": {**provenance(packages=PACKAGES), "command": COMMAND},
        "settings": {"train": options.train, "test": options.test, "seed": 0, "vocabulary": labels},
        "projects": found,
    }
    files.write_json(options.out / "annif.json", result)
    files.write_text(options.out / "annif.md", page(result))
    files.write_text(PAGE, filled(PAGE.read_text(encoding="utf-8"), result))


def write_corpus(work: Path, options: argparse.Namespace) -> int:
    """Write the vocabulary and random documents in Annif's formats; return the number of subjects."""
    dataset = load_dataset(options.data)
    assert dataset.test is not None
    with (options.data / "labels.tsv").open(encoding="utf-8") as lines:
        subjects = [line.rstrip("\n").split("\t") for line in lines]
    files.write_text(work / "vocabulary.tsv", "".join(f"<{uri}>\t{name}\n" for uri, name in subjects))
    uris = [uri for uri, _ in subjects]
    rows = np.random.default_rng(0).permutation(dataset.train.n)
    write_documents(work / "train.tsv", dataset.train.take(rows[: options.train]), uris)
    if options.held_out:
        test = dataset.train.take(rows[options.train : options.train + options.test])
    else:
        test = dataset.test.take(np.random.default_rng(0).permutation(dataset.test.n)[: options.test])
    write_documents(work / "test.tsv", test, uris)
    write_sentence_model(work, dataset.train.take(rows[: options.train]).texts or [])
    return len(uris)


def write_documents(path: Path, split: Split, uris: list[str]) -> None:
    rows = zip(split.texts or [], np.split(split.Y.indices, split.Y.indptr[1:-1]), strict=True)
    records = (Record(0, " ".join(text.split()), tuple(uris[each] for each in ids)) for text, ids in rows)
    write_records(path, records, "annif")


def write_sentence_model(work: Path, texts: list[str]) -> None:
    """Annif's analyzers split texts by NLTK's sentence model, a download; NLTK can also learn one from texts."""
    from nltk.tokenize.punkt import PunktTrainer, save_punkt_params

    folder = work / "nltk/tokenizers/punkt_tab/english"
    folder.mkdir(parents=True)
    save_punkt_params(PunktTrainer("\n".join(texts)).get_params(), dir=str(folder))


def project_id(name: str) -> str:
    return name.replace(", ", "-").lower()


def configure(work: Path) -> None:
    shared = ["language=en", "vocab=yso"]
    sections = ([f"[{project_id(name)}]", f"name={name}", *shared, *own, ""] for name, own in PROJECTS.items())
    files.write_text(work / "projects.cfg", "\n".join(line for section in sections for line in section))


def annif(work: Path, *arguments: str) -> float:
    """Run one of Annif's commands; return its seconds."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "circlet.annif", *arguments],
        cwd=work,
        env={**os.environ, "NLTK_DATA": str(work / "nltk")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"annif {' '.join(arguments)}: {done.stderr}")
    return time.perf_counter() - start


def measured(work: Path, name: str) -> dict[str, Any]:
    project = project_id(name)
    train = annif(work, "train", project, "train.tsv")
    wanted = [option for metric in METRICS for option in ("--metric", metric)]
    evaluation = annif(
        work, "eval", project, "test.tsv", "--limit", "10", *wanted, "--metrics-file", "metrics.json"
    )
    metrics = json.loads((work / "metrics.json").read_text(encoding="utf-8"))
    # What training was given is kept for `train --cached`, and is no part of the model.
    kept = (path for path in (work / "data/projects" / project).rglob("*") if "-train" not in path.name)
    found = {
        "name": name,
        "configuration": PROJECTS[name],
        **{metric: round(metrics[metric], 4) for metric in METRICS},
        "train_seconds": round(train, 1),
        "eval_seconds": round(evaluation, 1),
        "model_bytes": sum(path.stat().st_size for path in kept if path.is_file()),
    }
    print(json.dumps(found), flush=True)
    return found


def page(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    known = result["provenance"]
    versions = ", ".join(f"{name} {version}" for name, version in known["versions"].items() if version)
    return "\n".join(
        [
            "# circlet inside Annif",
            "",
            f"`{known['command']}`",
            "",
            "Annif's own metrics, of at most 10 suggestions; seconds are those of whole commands, start included.",
            "",
            table(result),
            f"{versions}; {known['machine']['processor']}, {known['machine']['threads']} threads.",
            "",
        ]
    )


def filled(text: str, result: dict[str, Any]) -> str:
    """The text of docs/annif.md with the table of this result."""
    between = re.compile(r"(<!-- comparison -->\n).*?(<!-- end -->)", re.DOTALL)
    return between.sub(lambda found: found[1] + table(result) + found[2], text)


def table(result: dict[str, Any]) -> str:
    """The table of the page, which docs/annif.md shows too."""
    settings = result["settings"]
    header = ["project", "F1@5", "nDCG", "train, s", "eval, s", "model, MB"]
    rows = [
        [each["name"], f"{each['F1@5']:.4f}", f"{each['NDCG']:.4f}", f"{each['train_seconds']:.0f}",
         f"{each['eval_seconds']:.0f}", f"{each['model_bytes'] / 1e6:.1f}"]
        for each in result["projects"]
    ]  # fmt: skip
    title = (
        f"{settings['train']:,} random titles of yso-finna-en to train on, {settings['test']:,} test titles, "
        f"{settings['vocabulary']:,} subjects"
    )
    return Table(title, header, rows).markdown()


if __name__ == "__main__":
    main()
