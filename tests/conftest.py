"""Set-up of all tests: event loops, scheduling with `-n 2`, generated examples, unhandled errors.

An async test runs on uvloop, as the daemons do; `--event-loop asyncio-debug` runs all of them on asyncio in
debug mode instead. Marks: `each_loop` (on both, one after the other), `virtual_time` (timers cost no time),
`long` (long and rare: deselected without `--long`; `--long -m long` selects these tests alone), `interpreted`
(replaces a part of a module that wheels have compiled: skipped where the hot path is compiled).
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from rmq_remoting.build_form import BUILD_FORM, IS_COMPILED
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

_loop_errors: list[dict[str, Any]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--event-loop",
        choices=["uvloop", "asyncio-debug"],
        default="uvloop",
        help="event loop of async tests",
    )
    parser.addoption("--long", action="store_true", help="run the long and rare tests, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "each_loop: run on uvloop and on asyncio in debug mode")
    config.addinivalue_line("markers", "virtual_time: run on a loop whose timers cost no time")
    config.addinivalue_line("markers", "long: long and rare, for `make test-long`")
    config.addinivalue_line("markers", "interpreted: needs modules that are not compiled")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell ignores SIGINT for background jobs. Programs that tests end by SIGINT would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return f"hot path: {BUILD_FORM}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if IS_COMPILED:
        for item in items:
            if item.get_closest_marker("interpreted") is not None:
                item.add_marker(pytest.mark.skip("is for the interpreted form only"))
    if config.getoption("--long"):
        return
    long_ones = [item for item in items if item.get_closest_marker("long") is not None]
    if long_ones:
        config.hook.pytest_deselected(items=long_ones)
        items[:] = [item for item in items if item.get_closest_marker("long") is None]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _Files(config, log)


class _Files(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """With `-n 2`, a worker takes one file at a time.

    Each worker starts the shared servers of a folder itself. That costs less than a core that idles while the
    other worker runs the rest of the folder.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]


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
