"""Tests of tables: a failing row is reported by its name, and the others still run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.rows import Part, each_row, each_seed, has_late_rows


class _Subtests:
    """Notes the rows that ran, and those that failed."""

    def __init__(self) -> None:
        self.ran: list[dict[str, Any]] = []
        self.failed: list[dict[str, Any]] = []

    @contextmanager
    def test(self, **shown: Any) -> Iterator[None]:
        self.ran.append(shown)
        try:
            yield
        except AssertionError:
            self.failed.append(shown)


def test_a_failing_row_is_named_and_the_others_run() -> None:
    @each_row(("number", "text"), [(1, "one"), (2, "two"), (3, "three")])
    def check(number: int, text: str) -> None:
        assert number != 2

    check(subtests=(subtests := _Subtests()))
    assert subtests.failed == [{"number": 2, "text": "two"}]
    assert len(subtests.ran) == 3


async def test_coroutines_are_awaited() -> None:
    @each_row("number", range(3), ids=str)
    async def check(number: int) -> None:
        assert number != 2

    await check(subtests=(subtests := _Subtests()))
    assert subtests.failed == [{"number": "2"}]


def test_two_tables_are_combined() -> None:
    found = []

    @each_row("letter", "ab")
    @each_row("number", [1, 2])
    def check(number: int, letter: str) -> None:
        found.append((letter, number))

    check(subtests=_Subtests())
    assert found == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


def test_each_row_has_its_own_folder(tmp_path: Path) -> None:
    @each_row("number", range(2))
    def check(tmp_path: Path, number: int) -> None:
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "file").touch()

    check(subtests=(subtests := _Subtests()), tmp_path=tmp_path)
    assert (len(subtests.ran), subtests.failed) == (2, [])


def test_fixtures_are_the_arguments_that_no_table_has() -> None:
    @each_row("number", [1])
    def check(tmp_path: Path, number: int) -> None: ...

    assert list(inspect.signature(check).parameters) == ["tmp_path", "subtests"]


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(AssertionError, match="no rows"):
        each_row("number", [])


@pytest.mark.parametrize(
    ("first", "late", "seeds"), [(True, False, [0, 1]), (False, True, [2, 3]), (True, True, [0, 1, 2, 3])]
)
def test_a_part_of_the_suite_has_its_seeds(
    monkeypatch: pytest.MonkeyPatch, first: bool, late: bool, seeds: list[int]
) -> None:
    found = []

    @each_row("letter", "ab")
    @each_seed(4)
    def check(seed: int, letter: str) -> None:
        found.append((letter, seed))

    assert has_late_rows(check)
    monkeypatch.setattr(Part, "first", first)
    monkeypatch.setattr(Part, "late", late)
    check(subtests=_Subtests())
    assert found == [(letter, seed) for letter in "ab" for seed in seeds]
