"""Set-up of all tests: event loops, parts of the suite, scheduling, generated examples, unhandled errors.

An async test runs on uvloop, as the daemons do; `--event-loop asyncio-debug` runs all of them on asyncio in
debug mode instead. Marks: `each_loop` (on both, one after the other), `virtual_time` (timers cost no time),
`long` (long and rare: deselected without `--long`; `--long -m long` selects these tests alone), `interpreted`
(replaces a part of a module that wheels have compiled: skipped where the hot path is compiled).

`make test` runs the part `quick`: unit and integration tests without those marked `thorough`, and tests of
other folders that are marked `smoke`. A case is marked if its name contains the arguments of the mark.
`make test-all` runs the rest, and the other seeds of tests that run with many (`each_seed`).
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from rmq_remoting.build_form import BUILD_FORM, IS_COMPILED, why_interpreted
from tests.support import rows
from tests.support.loops import LOOPS, new_loop

# Installed, it is loaded by its entry point.
pytest_plugins = ["rmq_testing.plugin"]

# Test machines are shared: the duration of one example says nothing about the code.
_HEALTH_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]
# `make test` checks the same examples each time. `make test-long` draws new ones, ten times as many
# (tests/support/examples.py), and prints for each failure the decorator that replays it (@reproduce_failure).
settings.register_profile("tests", deadline=None, suppress_health_check=_HEALTH_CHECKS, derandomize=True)
settings.register_profile(
    "long", deadline=None, suppress_health_check=_HEALTH_CHECKS, print_blob=True, max_examples=1000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))

# The folders of the part `quick`.
_QUICK = ("unit", "integration")
# The quickest folders first. The rest begins with long files instead, so that all processes end together.
_ORDER = (*_QUICK, "deploy", "interop", "spark", "cluster", "crash")
_ORDER_OF_REST = ("spark", "pages", "crash", "cluster", *_QUICK, "interop", "deploy")
_HERE = Path(__file__).parent
# An installation for `make test` alone does not have PySpark and what comes with it.
_WITHOUT_SPARK = find_spec("pyspark") is None
_NEED_SPARK = (
    "deploy/test_metric_names.py",
    "integration/test_pipeline_faults.py",
    "spark",
    "unit/docs/test_spark_pages.py",
    "unit/examples",
    "unit/spark",
)
collect_ignore = _NEED_SPARK if _WITHOUT_SPARK else ()

_loop_errors: list[dict[str, Any]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--event-loop",
        choices=["uvloop", "asyncio-debug"],
        default="uvloop",
        help="event loop of async tests",
    )
    parser.addoption("--long", action="store_true", help="run the long and rare tests, too")
    parser.addoption("--part", choices=["quick", "rest"], help="what `make test` or `make test-all` runs")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "each_loop: run on uvloop and on asyncio in debug mode")
    config.addinivalue_line("markers", "virtual_time: run on a loop whose timers cost no time")
    config.addinivalue_line("markers", "long: long and rare, for `make test-long`")
    config.addinivalue_line("markers", "interpreted: needs modules that are not compiled")
    config.addinivalue_line(
        "markers", "smoke(*parts): for `make test`, if the parts are in the name of the case"
    )
    config.addinivalue_line("markers", "thorough: for `make test-all`, though its folder is for `make test`")
    part = config.getoption("--part")
    rows.Part.first, rows.Part.late = part != "rest", part != "quick"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell ignores SIGINT for background jobs. Programs that tests end by SIGINT would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> list[str]:
    lines = [f"hot path: {BUILD_FORM}" if IS_COMPILED else f"hot path: interpreted: {why_interpreted()}"]
    if _WITHOUT_SPARK:
        lines.append("without Spark's tests: `make install` installs PySpark")
    return lines


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("--part")
    order = _ORDER_OF_REST if part == "rest" else _ORDER
    items.sort(key=lambda item: order.index(_folder(item)) if _folder(item) in order else len(order))
    if IS_COMPILED:
        for item in items:
            if item.get_closest_marker("interpreted") is not None:
                item.add_marker(pytest.mark.skip("is for the interpreted form only"))
    if not config.getoption("--long"):
        _deselect(config, items, lambda item: item.get_closest_marker("long") is not None)
    if part == "quick":
        _deselect(config, items, lambda item: not _is_quick(item))
    elif part == "rest":
        _deselect(config, items, lambda item: _is_quick(item) and not _has_late_rows(item))


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(_HERE).parts[0]


def _is_quick(item: pytest.Item) -> bool:
    if _folder(item) in _QUICK:
        return item.get_closest_marker("thorough") is None
    smoke = item.get_closest_marker("smoke")
    return smoke is not None and all(part in item.name for part in smoke.args)


def _has_late_rows(item: pytest.Item) -> bool:
    return rows.has_late_rows(getattr(item, "function", None))


def _deselect(
    config: pytest.Config, items: list[pytest.Item], is_left_out: Callable[[pytest.Item], bool]
) -> None:
    config.hook.pytest_deselected(items=[item for item in items if is_left_out(item)])
    items[:] = [item for item in items if not is_left_out(item)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--part") == "quick":
        terminalreporter.write_line(
            "Left out: foreign clients, Spark, crashes, clusters, deployment, pages (`make test-all`)"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _Files(config, log)


class _Files(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """With `-n 2`, a worker takes one file at a time, or all files that share a Spark session.

    Each worker starts the other shared servers of a folder itself. That costs less than an idle core.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "tests/spark" if file.startswith("tests/spark/test_") else file


def pytest_collection_finish() -> None:
    # Imported objects live until the end: the collection after each async test may skip them.
    gc.collect()
    gc.freeze()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("virtual_time") is not None:
        names = ["virtual-time"]
    elif item.get_closest_marker("each_loop") is not None:
        names = ["uvloop", "asyncio-debug"]
    else:
        names = [config.getoption("--event-loop")]
    assert set(names) <= set(LOOPS)
    return {name: partial(new_loop, name, _loop_errors) for name in names}


@pytest.fixture(autouse=True)
def loop_errors(request: pytest.FixtureRequest) -> Iterator[list[dict[str, Any]]]:
    """Unhandled errors of the test's event loop; a test that expects errors removes them from the list."""
    _loop_errors.clear()
    yield _loop_errors
    if request.node.get_closest_marker("asyncio") is not None:
        # Reports the exceptions of futures that were never retrieved. A full collection takes four times as
        # long, and finds few more.
        gc.collect(1)
    errors = [_described(context) for context in _loop_errors]
    _loop_errors.clear()
    assert not errors, "unhandled errors in the event loop:\n" + "\n".join(errors)


def _described(context: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in context.items() if key != "source_traceback")
