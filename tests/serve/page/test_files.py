"""A file, read in the browser and tagged in batches."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from tests.serve.page.conftest import LOOP, MAIL, answer_first

pytestmark = pytest.mark.slow


def choose(page, name: str, content: str | bytes) -> None:
    page.click("#tab-file")
    raw = content.encode() if isinstance(content, str) else content
    page.set_input_files("#file-input", {"name": name, "mimeType": "text/plain", "buffer": raw})


def saved(page, button: str) -> tuple[str, str]:
    with page.expect_download() as download:
        page.click(button)
    return download.value.suggested_filename, Path(download.value.path()).read_bytes().decode()


def tag(page) -> list[dict]:
    """Tag the file that was chosen; what is saved as JSONL."""
    page.click("#file-start")
    page.wait_for_selector("#file-done")
    return [json.loads(line) for line in saved(page, "#save-jsonl")[1].splitlines()]


def expected(ask, *documents: tuple) -> list[dict]:
    results = ask("/suggest", texts=[text for _, text in documents], threshold=0)["results"]
    return [
        {
            "id": key,
            "labels": [each["label"] for each in result["labels"]],
            "scores": [pytest.approx(each["probability"], abs=6e-5) for each in result["labels"]],
        }
        for (key, _), result in zip(documents, results, strict=True)
    ]


def test_csv(page, ask):
    quoted = 'mail, "server"\nand message'
    choose(page, "mine.csv", f'id,text\r\n=1,{LOOP}\r\n"a,b","{quoted.replace(chr(34), chr(34) * 2)}"\r\n')
    page.wait_for_selector("#file-start")
    assert page.inner_text("#file-facts") == "CSV, 2 documents"
    assert page.inner_text("#file-first") == LOOP
    page.click("#file-start")
    page.wait_for_selector("#file-done")
    assert "Done: 2 documents tagged." in page.inner_text("#file-message")
    wanted = expected(ask, ("=1", LOOP), ("a,b", quoted))
    name, content = saved(page, "#save-jsonl")
    assert name == "mine.tagged.jsonl"
    assert [json.loads(line) for line in content.splitlines()] == wanted
    name, content = saved(page, "#save-csv")
    assert name == "mine.tagged.csv"
    rows = [
        {"id": row["id"], "labels": json.loads(row["labels"]), "scores": json.loads(row["scores"])}
        for row in csv.DictReader(io.StringIO(content))
    ]
    assert rows == wanted


def test_jsonl_and_lines(page, ask):
    choose(
        page, "mine.jsonl", "".join(json.dumps(each) + "\n" for each in ({"id": 7, "text": LOOP}, {"text": MAIL}))
    )
    assert tag(page) == expected(ask, (7, LOOP), (1, MAIL))
    choose(page, "mine.txt", f"{LOOP}\n\n{MAIL}\n")
    assert tag(page) == expected(ask, (0, LOOP), (2, MAIL))


def test_another_column(page, ask):
    choose(page, "mine.tsv", f"title\tbody\nnothing\t{LOOP}\n")
    page.select_option("#text-column", label="body")
    assert page.inner_text("#file-first") == LOOP
    assert tag(page) == expected(ask, (0, LOOP))


@pytest.fixture
def asked(page):
    """The number of texts of each request for labels."""
    counts: list[int] = []
    page.on(
        "request",
        lambda request: counts.append(len(request.post_data_json["texts"])) if "/suggest" in request.url else None,
    )
    return counts


def test_progress_and_cancel(page, asked):
    page.route("**/suggest", lambda route: route.continue_() if len(asked) < 2 else None)  # which waits
    choose(page, "many.txt", f"{LOOP}\n" * 100)
    page.click("#file-start")
    page.wait_for_selector("#file-count:text('32 of 100')")
    assert page.evaluate("document.getElementById('file-progress').value") == 0.32
    page.click("#file-cancel")
    page.wait_for_selector("#file-done")
    assert "Cancelled. 32 of 100 documents are tagged" in page.inner_text("#file-message")
    assert len(saved(page, "#save-jsonl")[1].splitlines()) == 32
    assert asked == [32, 32]


def test_goes_on_after_a_busy_service_and_halves_what_is_too_large(page, asked):
    answer_first(page, "/suggest", (503, "too many requests at once"), (413, "found 10 texts; wanted at most 5"))
    choose(page, "some.txt", "".join(f"{LOOP} {i}\n" for i in range(10)))
    assert [each["id"] for each in tag(page)] == list(range(10))
    assert asked == [10, 10, 5, 5]


def test_goes_on_when_the_server_is_back(page, server):
    choose(page, "some.txt", f"{LOOP}\n" * 40)
    page.wait_for_selector("#file-start")
    server.stop()
    page.click("#file-start")
    page.wait_for_selector(".connection.down")
    server.start()
    page.wait_for_selector("#file-done")
    assert "Done: 40 documents tagged." in page.inner_text("#file-message")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pdf", "x", "found a file called a.pdf; wanted one that ends in .csv, .tsv, .jsonl or .txt"),
        ("a.csv", "text\n", "found no documents in a.csv"),
        ("a.csv", 'text\n"open', "line 2: found a quote that is never closed"),
        ("a.csv", "id,text\n1,a,b\n", "row 1: found 3 cells; wanted 2"),
        ("a.jsonl", '{"text": "a"}\n[1]\n', "line 2: found [1]; wanted a JSON object"),
        ("a.txt", b"\xff\xfe", "found bytes that are not UTF-8"),
    ],
)
def test_says_what_is_wrong_with_a_file(page, name, content, message):
    choose(page, name, content)
    page.wait_for_selector("#file-message.error")
    assert message in page.inner_text("#file-message")
    assert not page.is_visible("#file-start")


def test_dropped(page):
    page.click("#tab-file")
    page.evaluate(
        """text => {
        const data = new DataTransfer();
        data.items.add(new File([text], "dropped.txt"));
        document.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: data }));
    }""",
        LOOP,
    )
    page.wait_for_selector("#file-start")
    assert page.inner_text("#file-name") == "dropped.txt"
