"""Long tables of test data: one test for the whole table, each row a subtest."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import pytest

_Test = Callable[..., Any]
_Arguments = dict[str, Any]
# The seeds of each_seed() that `make test` runs.
_FIRST_SEEDS: Final = 2


@dataclass(frozen=True)
class _Row:
    arguments: _Arguments
    shown: _Arguments  # in the report of a failure
    is_late: bool = False  # for `make test-all`

    def with_more(self, other: _Row) -> _Row:
        return _Row(self.arguments | other.arguments, self.shown | other.shown, self.is_late or other.is_late)


class Part:
    """The part of the suite that runs: rows of `first` seeds, of `late` ones, or of both."""

    first = True
    late = True


def each_row(
    names: str | Sequence[str], table: Iterable[Any], ids: Callable[[Any], object] | None = None
) -> Callable[[_Test], _Test]:
    """Call a test with each row of a table: `pytest.mark.parametrize` for tables of more than about 12 rows.

    The report names a failing row, and the test still runs the other rows. All rows share their fixtures,
    except that each row has its own `tmp_path` and an empty `caplog`. `ids` makes the name of a row from its
    first value. Two decorators make all combinations of their rows.
    """
    keys = [names] if isinstance(names, str) else list(names)
    own = [_row(keys, [row] if isinstance(names, str) else row, ids) for row in table]
    assert own, "the table has no rows"
    return lambda test: _with_rows(test, own)


def each_seed(number: int) -> Callable[[_Test], _Test]:
    """Call a test with each `seed` below a number, as by each_row().

    `make test` runs the first two seeds, and `make test-all` the others.
    """
    rows = [_Row({"seed": seed}, {"seed": seed}, seed >= _FIRST_SEEDS) for seed in range(number)]
    return lambda test: _with_rows(test, rows)


def has_late_rows(test: _Test | None) -> bool:
    """Return whether `make test-all` runs rows of a test, too."""
    return any(row.is_late for row in getattr(test, "_rows", (test, []))[1])


def _with_rows(test: _Test, own: Sequence[_Row]) -> _Test:
    plain, further = getattr(test, "_rows", (test, [_Row({}, {})]))
    return _with_subtests(plain, [row.with_more(other) for row in own for other in further])


def _row(keys: list[str], values: Sequence[Any], ids: Callable[[Any], object] | None) -> _Row:
    arguments = dict(zip(keys, values, strict=True))
    return _Row(arguments, arguments if ids is None else {keys[0]: ids(values[0])})


def _with_subtests(test: _Test, rows: list[_Row]) -> _Test:
    @functools.wraps(test)
    def run(*args: Any, subtests: pytest.Subtests, **fixtures: Any) -> None:
        for subtest, arguments in _subtests(rows, subtests, fixtures):
            with subtest:
                test(*args, **arguments)

    @functools.wraps(test)
    async def run_async(*args: Any, subtests: pytest.Subtests, **fixtures: Any) -> None:
        for subtest, arguments in _subtests(rows, subtests, fixtures):
            with subtest:
                await test(*args, **arguments)

    whole = run_async if inspect.iscoroutinefunction(test) else run
    signature = inspect.signature(test)
    fixtures = [each for each in signature.parameters.values() if each.name not in rows[0].arguments]
    subtests = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
    vars(whole).update(
        __signature__=signature.replace(parameters=[*fixtures, subtests]),
        _rows=(test, rows),
    )
    return whole


def _subtests(
    rows: list[_Row], subtests: pytest.Subtests, fixtures: _Arguments
) -> Iterator[tuple[AbstractContextManager[None], _Arguments]]:
    selected = [row for row in rows if (Part.late if row.is_late else Part.first)]
    for number, row in enumerate(selected):
        own = {}
        if "tmp_path" in fixtures:
            own["tmp_path"] = fixtures["tmp_path"] / str(number)
            own["tmp_path"].mkdir()
        if "caplog" in fixtures:
            fixtures["caplog"].clear()
        yield subtests.test(**row.shown), {**fixtures, **row.arguments, **own}
