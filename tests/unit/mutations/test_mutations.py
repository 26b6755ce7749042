"""Draws of mutations, and the search for them in another version of the code."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mutations.mutations import Mutation, Sources, draw, find, read, records, written

_FILE = "broker/rmq_broker/offsets/table.py"
_SOURCE = """
def commit(offset, before):
    if offset < before:
        return before
    if offset < 0:
        return before
    return offset


def reset(offset, before):
    if offset < before:
        return offset
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    _write(tmp_path, _FILE, _SOURCE)
    for name in ("acks", "checks", "turns"):
        _write(tmp_path, f"broker/rmq_broker/pop/{name}.py", "def run(a):\n    a.b()\n    return a + 1\n")
    return tmp_path


def _write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _comparison(root: Path, line: int) -> Mutation:
    mutations = Sources(root).mutations("offsets", _FILE)
    return next(each for each in mutations if (each.line, each.kind) == (line, "compare"))


def test_a_seed_draws_the_same_different_lines_of_each_area(root: Path) -> None:
    drawn = draw(Sources(root), ["offsets", "pop"], 7, seed=36)
    assert drawn == draw(Sources(root), ["offsets", "pop"], 7, seed=36)
    assert drawn != draw(Sources(root), ["offsets", "pop"], 7, seed=37)
    assert Counter(mutation.area for mutation in drawn) == {"offsets": 3, "pop": 3}
    assert len({(mutation.file, mutation.line) for mutation in drawn}) == 6


def test_the_draw_of_an_area_does_not_depend_on_others(root: Path) -> None:
    drawn = draw(Sources(root), ["offsets", "pop"], 6, seed=1)
    assert drawn[3:] == draw(Sources(root), ["pop"], 3, seed=1)


def test_a_mutation_is_stored_and_read(root: Path, tmp_path: Path) -> None:
    mutation = _comparison(root, 3)
    assert written(mutation)["id"] == f"{_FILE}:3:14:compare"
    assert read(written(mutation) | {"outcome": "killed"}) == mutation
    assert mutation.diff().splitlines()[1:] == ["- if offset < before:", "+ if offset <= before:"]


def test_a_line_that_a_kill_cut_off_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert records(path) == []
    path.write_text('{"id": 1}\n{"id"')
    assert records(path) == [{"id": 1}]


def test_a_moved_and_indented_line_is_found_in_its_function(root: Path) -> None:
    stored = _comparison(root, 11)
    moved = "class Table:\n" + "\n".join(f"    {line}" for line in _SOURCE.split("\n"))
    _write(root, _FILE, moved)
    found = find(Sources(root), stored)
    assert found is not None
    assert (found.line, found.column, found.function) == (12, 18, "Table.reset")
    assert found.after == "        if offset <= before:"


def test_a_changed_line_is_not_found(root: Path) -> None:
    stored = _comparison(root, 5)
    _write(root, _FILE, _SOURCE.replace("offset < 0", "offset < NO_OFFSET"))
    assert find(Sources(root), stored) is None


def test_equal_lines_of_other_functions_are_not_mistaken_for_it(root: Path) -> None:
    stored = _comparison(root, 3)
    _write(root, _FILE, _SOURCE.replace("def commit", "def put") + _SOURCE.replace("def commit", "def add"))
    assert find(Sources(root), stored) is None


def test_a_moved_file_is_found_in_all_areas(root: Path) -> None:
    stored = _comparison(root, 3)
    (root / _FILE).rename(root / "broker/rmq_broker/pop/table.py")
    found = find(Sources(root), stored)
    assert found is not None
    assert (found.area, found.file, found.line) == ("pop", "broker/rmq_broker/pop/table.py", 3)
