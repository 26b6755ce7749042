"""A pytest plugin that selects tests, and records their outcomes and the places that they reach.

Files beside this module: `selected` has the names of the tests to run, as a JSON list, or is missing for all
of them. `collected` gets the names of the tests to run, `outcomes` a JSON line for each finished test, and
`reached` the places that each row reached.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
import rmq_mutation_probe as probe  # its name beside a checkout

_FOLDER: Final = Path(__file__).parent
# Rows of tests begin at 1, those of fixtures that tests share begin here.
_FIRST_SHARED_ROW: Final = 1 << 15


class _Recorder:
    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._shared_rows: dict[int, int] = {}
        self._outcome = "passed"
        self._outcomes = (_FOLDER / "outcomes").open("a", buffering=1)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        path = _FOLDER / "selected"
        if path.exists():
            selected = set(json.loads(path.read_text()))
            others = [item for item in items if item.nodeid not in selected]
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if item.nodeid in selected]
        self._rows = {item.nodeid: row for row, item in enumerate(items, start=1)}
        assert len(items) < _FIRST_SHARED_ROW
        # Renamed, since the file is read at any time.
        path = _FOLDER / "collected.new"
        path.write_text(json.dumps(list(self._rows)))
        path.replace(_FOLDER / "collected")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._outcome = "passed"
        row = self._rows[item.nodeid]
        probe.enter(row)
        start = time.monotonic()
        try:
            return (yield)
        finally:
            rows = [row, *map(self._shared_row, _shared_fixtures(item))]
            record = {
                "test": item.nodeid,
                "outcome": self._outcome,
                "seconds": round(time.monotonic() - start, 3),
                "rows": rows,
            }
            self._outcomes.write(json.dumps(record) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A test of which a subtest is skipped has run.
        is_skipped = report.skipped and not isinstance(report, pytest.SubtestReport)
        if report.failed or (is_skipped and self._outcome == "passed"):
            self._outcome = report.outcome

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        before = probe.row()
        probe.enter(self._shared_row(fixturedef))
        try:
            return (yield)
        finally:
            probe.enter(before)

    def pytest_sessionfinish(self) -> None:
        probe.enter(0)
        places = {row: probe.places(row) for row in [0, *self._rows.values(), *self._shared_rows.values()]}
        (_FOLDER / "reached").write_text(json.dumps(places))

    def _shared_row(self, fixture: pytest.FixtureDef[Any]) -> int:
        return self._shared_rows.setdefault(id(fixture), _FIRST_SHARED_ROW + len(self._shared_rows))


def _shared_fixtures(item: pytest.Item) -> list[pytest.FixtureDef[Any]]:
    """Return the fixtures of a test that other tests use, too."""
    if not isinstance(item, pytest.Function):
        return []
    definitions = item._fixtureinfo.name2fixturedefs.values()
    return [each[-1] for each in definitions if each[-1].scope != "function"]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Recorder())
