from __future__ import annotations

import gzip

import pytest

from circlet.errors import DataError
from circlet.folder.contents import labels_text, read_labels

NAMES = ["red", "dark blue", "größer", "日本", "#6", "\u2028"]


def test_written_and_read_again(tmp_path):
    path = tmp_path / "labels.txt"
    text = labels_text([*NAMES[:5], "a\u2028b\x85c"], 6)  # other line ends than \n are no line ends here
    path.write_text(text, encoding="utf-8", newline="\n")
    assert read_labels(path, 6) == [*NAMES[:5], "a\u2028b\x85c"]
    zipped = tmp_path / "labels.txt.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    assert read_labels(zipped, 6) == read_labels(path, 6)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b", "a"], "found the label name 'a' twice"),
        (["a", "", "b"], "an empty label name"),
        (["a", " ", "b"], "an empty label name"),
        (["a", "b\nc", "d"], "a tab, line end or zero character"),
        (["a", "b\rc", "d"], "a tab, line end or zero character"),
        (["a", "b"], "found 2 label names; wanted one for each of 3 labels"),
        (["a", "b", "\ud800"], "found a label name that is not text"),
    ],
)
def test_names_that_cannot_be_written(names, message):
    with pytest.raises(DataError, match=message):
        labels_text(names, 3)


def test_what_cannot_be_written_is_named():
    with pytest.raises(DataError, match="label_uris: found 2 label names; wanted one for each of 3 labels"):
        labels_text(["a", "b"], 3, "label_uris")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\na\n", "found the label name 'a' twice"),
        (b"a\n\nb\n", "label 2: found '', an empty label name"),
        (b"a\nb\n \t\n", "label 3: found .* with a tab"),
        (b"a\nb\n", "found 2 label names; wanted 3"),
        (b"a\nb\nc", "found 2 label names; wanted 3"),
        (b"a\nb\nc\nd", "a last name without a line end"),
        (b"a\nb\n\xff\n", "found no readable label names"),
    ],
)
def test_damage(content, message, tmp_path):
    path = tmp_path / "labels.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_labels(path, 3)
    assert str(caught.value).startswith(str(path))
