from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from circlet.bulk.plan import PLAN, Block, File, Options, Plan, check_folder, load_plan
from circlet.errors import DataError, OutputError

OPTIONS = Options("digest", 5, None, 0.0, "text", "parquet", 100)
BLOCKS = [Block(0, 90, 1, 90), Block(90, 130, 8, 40)]


def made(*names: str, **about) -> Plan:
    files = [File(str(Path("/data") / name), 130, 17, "jsonl", **about) for name in names]
    return Plan(OPTIONS, [(file, BLOCKS) for file in files])


class TestParts:
    def test_names_are_stable(self):
        """Who has half of a run from an older version must find the same names."""
        assert [(task.name, task.part) for task in made("b/x.jsonl", "a/x.jsonl").tasks()] == [
            ("b/x.jsonl", "part-00000-2af045b7-00000.parquet"),
            ("b/x.jsonl", "part-00000-2af045b7-00001.parquet"),
            ("a/x.jsonl", "part-00001-9a786367-00000.parquet"),
            ("a/x.jsonl", "part-00001-9a786367-00001.parquet"),
        ]

    def test_names_sort_like_the_input(self):
        parts = [task.part for task in made(*(f"{name}.jsonl" for name in "cabxd")).tasks()]
        assert parts == sorted(set(parts))

    def test_a_changed_file_has_other_parts(self):
        def parts(**about) -> set[str]:
            file, blocks = made("x.jsonl").files[0]
            return {task.part for task in Plan(OPTIONS, [(replace(file, **about), blocks)]).tasks()}

        assert parts() == parts(path="/elsewhere/x.jsonl")  # the same file in a folder that was moved
        for change in ({"size": 131}, {"changed": 18}, {"path": "/data/y.jsonl"}):
            assert not parts() & parts(**change)


class TestSaved:
    def test_there_and_back(self, tmp_path):
        assert load_plan(tmp_path) is None
        plan = made("a.jsonl", "b.jsonl", header=7, integer_ids=True)
        plan.save(tmp_path)
        assert load_plan(tmp_path) == plan

    @pytest.mark.parametrize(
        "content", ["{", "[]", "{}", '{"format": "circlet plan 2"}', '{"format": "circlet plan 1", "options": {}}']
    )
    def test_damaged(self, tmp_path, content):
        (tmp_path / PLAN).write_text(content)
        with pytest.raises(DataError, match=PLAN):
            load_plan(tmp_path)

    def test_blocks_of_another_shape(self, tmp_path):
        made("a.jsonl").save(tmp_path)
        content = json.loads((tmp_path / PLAN).read_text())
        content["files"][0]["blocks"][0] = [1]
        (tmp_path / PLAN).write_text(json.dumps(content))
        with pytest.raises(DataError, match="found no plan of this version"):
            load_plan(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 3}, "found a run with -k 5, and now 3; wanted the same"),
        ({"threshold": 0.5}, "found a run with --threshold None, and now 0.5"),
        ({"text_column": "body"}, "found a run with --text-column text, and now body"),
        ({"block_size": 7}, "found a run with --block-size 100, and now 7"),
        ({"model": "other"}, "found a run with another model; wanted the same"),
    ],
)
def test_other_options_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        made().check(Path("out"), replace(OPTIONS, **change), [])


def test_other_files_are_refused():
    a, b, c = (Path("/data") / name for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    plan = made("a.jsonl", "b.jsonl")
    for paths, message in {
        (a,): "found a run with .*b.jsonl, which is not in the input now",
        (a, b, c): "found a run without .*c.jsonl, which is in the input now",
        (b, a): "the same files in another order",
    }.items():
        with pytest.raises(DataError, match=message):
            plan.check(Path("out"), OPTIONS, paths)


def test_ids_are_integers_only_if_all_are():
    assert made("a", integer_ids=True).integer_ids
    assert not Plan(OPTIONS, [*made("a", integer_ids=True).files, *made("b").files]).integer_ids


def test_folders_with_other_things_are_refused(tmp_path):
    check_folder(tmp_path / "new")
    check_folder(tmp_path)
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(OutputError, match=r"found 'thesis\.txt' and no _plan\.json; wanted an empty folder"):
        check_folder(tmp_path)
    with pytest.raises(OutputError, match="found a file; wanted a folder"):
        check_folder(tmp_path / "thesis.txt")
    made().save(tmp_path)
    check_folder(tmp_path)
