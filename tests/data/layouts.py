"""Small folders in every format that is read, and what is promised about any that is."""

from __future__ import annotations

import gzip
from importlib.util import find_spec

import numpy as np
import scipy.sparse as sp

from circlet.data import Dataset, Split
from circlet.data.dataset import check_split
from circlet.data.matrices import write_matrices, write_sparse_text, write_xmc
from circlet.data.records import Record, write_records

X = sp.random(12, 9, density=0.4, format="csr", dtype=np.float32, random_state=0)
Y = (sp.random(12, 7, density=0.3, format="csr", random_state=1) > 0).astype(np.float32)
RECORDS = [Record(n, f"text number {n}, with “quotes”", tuple("abc"[: n % 4])) for n in range(1, 13)]


def put(folder, content: str | bytes, name="documents.dat"):
    """Write a file, and give its path."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def csr(rows, dtype=np.float32):
    """A small sparse matrix."""
    return sp.csr_matrix(np.array(rows, dtype=dtype))


def write_texts(folder, records):
    """Write documents to a folder, a text and a file of labels (`.key`) for each."""
    for number, record in enumerate(records, 1):
        name = str(record.id or f"{number:06}.txt")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(record.text.encode())
        (folder / name).with_suffix(".key").write_bytes("".join(f"{label}\n" for label in record.labels).encode())


def write_parquet(path, records):
    """Write documents to a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    rows = list(records)
    schema = pyarrow.schema({"text": pyarrow.string(), "labels": pyarrow.list_(pyarrow.string())})
    content = {"text": [row.text for row in rows], "labels": [list(row.labels) for row in rows]}
    pyarrow.parquet.write_table(pyarrow.table(content, schema=schema), path)


def _npz(folder, dense=False):
    split = Split(X.toarray() if dense else X, Y)
    write_matrices(folder, Dataset("d", split, split))


def _newer(folder):
    write_sparse_text(folder / "trn_X_Xf.txt", X)
    write_sparse_text(folder / "trn_X_Y.txt", Y)


def _split_files(folder):
    write_xmc(folder / "s_data.txt", X, Y)
    (folder / "s_trSplit.txt").write_text("".join(f"{n} {13 - n}\n" for n in range(1, 9)))
    (folder / "s_tstSplit.txt").write_text("".join(f"{n} {13 - n}\n" for n in range(9, 13)))


def _companions(folder):
    write_matrices(folder, Dataset("d", Split(X, Y)))
    (folder / "labels.tsv").write_text("".join(f"u:{n}\tname {n}\n" for n in range(7)))
    (folder / "train_raw_texts.txt.gz").write_bytes(gzip.compress(b"text\n" * 12, mtime=0))


def _texts(folder):
    write_texts(folder, RECORDS)


# How to write a folder, and which of its files to damage.
LAYOUTS = {
    "xmc": (lambda folder: write_xmc(folder / "train.txt", X, Y), "train.txt"),
    "xmc-gz": (lambda folder: write_xmc(folder / "train.txt.gz", X, Y), "train.txt.gz"),
    "svmlight": (lambda folder: write_xmc(folder / "train.svm", X, Y, header=False), "train.svm"),
    "split-data": (_split_files, "s_data.txt"),
    "split-rows": (_split_files, "s_trSplit.txt"),
    "newer-X": (_newer, "trn_X_Xf.txt"),
    "newer-Y": (_newer, "trn_X_Y.txt"),
    "npz-X": (_npz, "X.trn.npz"),
    "npz-Y": (_npz, "Y.tst.npz"),
    "npy": (lambda folder: _npz(folder, dense=True), "X.trn.npy"),
    "labels": (_companions, "labels.tsv"),
    "raw-texts": (_companions, "train_raw_texts.txt.gz"),
    "jsonl": (lambda folder: write_records(folder / "train.jsonl", RECORDS, "jsonl"), "train.jsonl"),
    "jsonl-gz": (lambda folder: write_records(folder / "train.jsonl.gz", RECORDS, "jsonl"), "train.jsonl.gz"),
    "csv": (lambda folder: write_records(folder / "train.csv", RECORDS, "csv"), "train.csv"),
    "tsv": (lambda folder: write_records(folder / "train.tsv", RECORDS, "tsv"), "train.tsv"),
    "fasttext": (lambda folder: write_records(folder / "train.txt", RECORDS, "fasttext"), "train.txt"),
    "texts": (_texts, "000003.txt"),
    "labels-of-texts": (_texts, "000003.key"),
    **(
        {"parquet": (lambda folder: write_parquet(folder / "train.parquet", RECORDS), "train.parquet")}
        if find_spec("pyarrow")
        else {}
    ),
    "annif": (lambda folder: write_records(folder / "train.tsv", RECORDS, "annif"), "train.tsv"),
}


def holds_together(dataset):
    """Everything a reader promises, checked on the arrays themselves."""
    for split in (dataset.train, dataset.test):
        if split is None:
            continue
        check_split(split, where="damaged", label_names=dataset.label_names)
        for M in [split.Y] + ([split.X] if sp.issparse(split.X) else []):
            assert M.dtype == np.float32
            assert M.indptr[0] == 0
            assert M.indptr[-1] == len(M.indices) == len(M.data)
            assert (np.diff(M.indptr) >= 0).all()
            assert not len(M.indices) or (M.indices.min() >= 0 and M.indices.max() < M.shape[1])
        assert (split.Y.data == 1).all()
        assert split.texts is None or all(
            isinstance(text, str) and text.encode() is not None for text in split.texts
        )
    dataset.statistics()
