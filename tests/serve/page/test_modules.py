"""The page's pure functions, in the browser, on cases solved by hand."""

from __future__ import annotations

import pytest
from tests.serve.page.conftest import Page
from tests.serve.page.service import Service

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def blank(browser):
    """One page for all: pure functions leave no traces."""
    server = Service()
    server.start()
    page: Page = browser.new_page()
    page.goto(f"{server.url}v1/health")
    yield page
    page.close()
    server.stop()


@pytest.fixture
def call(blank):
    """Call an exported function of a module of the page."""

    def called(module: str, expression: str, *arguments):
        source = f"async values => {{ const m = await import('/page/{module}.js'); return {expression}; }}"
        return blank.evaluate(source, arguments)

    return called


class TestOffsets:
    @pytest.mark.parametrize(
        ("text", "units"),
        [("", [0]), ("ab", [0, 1, 2]), ("a😀b", [0, 1, 3, 4]), ("😀😀", [0, 2, 4]), ("e\u0301x", [0, 1, 2, 3])],
    )
    def test_of_code_points(self, call, text, units):
        points = list(range(len(text) + 1))
        assert call("offsets", "values[1].map(m.pointsToUnits(values[0]))", text, points) == units

    def test_outside(self, call):
        assert call("offsets", "[-1, 99].map(m.pointsToUnits(values[0]))", "a😀") == [0, 3]

    @pytest.mark.parametrize(
        ("spans", "merged"),
        [
            ([], []),
            ([[2, 2, 1]], []),
            ([[4, 6, 1], [0, 2, 2]], [[0, 2, 2], [4, 6, 1]]),
            ([[0, 4, 1], [2, 6, 2]], [[0, 2, 1], [2, 4, 3], [4, 6, 2]]),
            ([[0, 2, 1], [2, 4, 1]], [[0, 4, 1]]),
            ([[0, 2, 1], [2, 4, -1]], [[0, 2, 1], [2, 4, -1]]),
            ([[0, 4, 1], [1, 2, -1]], [[0, 1, 1], [2, 4, 1]]),
            ([[0, 4, 0.1], [0, 4, 0.2], [4, 5, 1]], [[0, 4, 0.1 + 0.2], [4, 5, 1]]),
        ],
    )
    def test_merged_spans(self, call, spans, merged):
        assert call("offsets", "m.mergeSpans(values[0])", spans) == merged

    def test_pieces(self, call):
        found = call("offsets", "m.pieces('abcdef', [[0, 1, 2], [3, 5, -1]])")
        assert [(each["text"], each["value"]) for each in found] == [("a", 2), ("bc", 0), ("de", -1), ("f", 0)]
        assert call("offsets", "m.pieces('', [])") == []


class TestTables:
    @pytest.mark.parametrize(
        ("text", "rows"),
        [
            ("", []),
            ("a,b", [["a", "b"]]),
            ("a,b\n", [["a", "b"]]),
            ("a,b\r\nc,d\r\n", [["a", "b"], ["c", "d"]]),
            ("a\n\nb\n", [["a"], ["b"]]),
            (",\n", [["", ""]]),
            ("a,", [["a", ""]]),
            ('"a,b","c""d"\n"e\nf",g', [["a,b", 'c"d'], ["e\nf", "g"]]),
            ('"",x', [["", "x"]]),
            ('a "b" c', [['a "b" c']]),
        ],
    )
    def test_csv(self, call, text, rows):
        assert call("tables", "m.parseCsv(values[0])", text) == rows

    def test_which_columns(self, call):
        def columns(name, content):
            found = call("tables", "m.readTable(values[0], values[1])", name, content)
            return found["textColumn"], found["idColumn"]

        assert columns("a.csv", "id,text\n1,a") == (1, 0)
        assert columns("a.csv", "\ufeffText,ID\na,1") == (0, 1)
        assert columns("a.csv", "words\na") == (0, -1)
        assert columns("a.csv", "title,body\na,b") == (0, -1)
        assert columns("a.jsonl", '{"labels": ["x"], "text": "a", "id": 3}') == (1, 2)
        assert columns("a.jsonl", '"a"') == (0, -1)

    def test_a_text_that_is_none(self, call):
        message = call(
            "tables",
            """(() => { try { return m.documentsOf(m.readTable("a.jsonl", '{"id": 1}\\n{"text": "b"}'), 1); }
                         catch (error) { return error.message; } })()""",
        )
        assert message == "document 1: found nothing as “text”; wanted a text"

    def test_written_csv(self, call):
        results = [
            {"id": 'a "b", c', "labels": ['x "y"', "z"], "scores": [0.5, 1]},
            {"id": 1, "labels": [], "scores": []},
        ]
        assert call("tables", "m.toCsv(values[0])", results).splitlines() == [
            "id,labels,scores",
            '"a ""b"", c","[""x \\""y\\"""",""z""]","[0.5,1]"',
            "1,[],[]",
        ]

    def test_batches(self, call):
        sizes = "[...m.batches(values[0].map(n => ({text: 'x'.repeat(n)})), values[1])].map(batch => batch.length)"
        limits = {"documentsEach": 3, "charactersEach": 10}
        assert call("tables", sizes, [1] * 7, limits) == [3, 3, 1]
        assert call("tables", sizes, [6, 5, 5, 30, 1], limits) == [1, 2, 1, 1]
        assert call("tables", sizes, [], limits) == []


class TestChart:
    def test_ticks_are_round(self, call):
        assert call("chart", "m.ticks(0, 100)") == [0, 50, 100]
        assert call("chart", "m.ticks(38, 86)") == [40, 60, 80]
        assert call("chart", "m.ticks(0.81, 0.86)") == [0.82, 0.84, 0.86]
        assert call("chart", "m.ticks(3, 3)") == [3]

    def test_a_line_for_each_network(self, call):
        history = [{"epoch": 1, "P@1": 0.5}, {"epoch": 2}, {"epoch": 1, "member": 2, "P@1": 0.25}]
        assert call("chart", "m.curves(values[0], 'P@1')", history) == [
            [{"epoch": 1, "value": 50}],
            [{"epoch": 1, "value": 25}],
        ]
        assert call("chart", "m.drawCurves([], 'P@1')") is None


def test_words_of_a_shell(call):
    assert call("copying", "m.quoted(values[0])", "it's $HOME") == "'it'\\''s $HOME'"


def test_numbers(call):
    assert call("dom", "[0, 999, 1000, 42890839, 3514].map(m.bytes)") == [
        "0\u00a0bytes",
        "999\u00a0bytes",
        "1.0\u00a0kB",
        "42.9\u00a0MB",
        "3.5\u00a0kB",
    ]
    assert call("dom", "[m.percent(0.12345), m.plural(1, 'label'), m.plural(1234, 'label')]") == [
        "12.3\u00a0%",
        "1 label",
        "1,234 labels",
    ]
