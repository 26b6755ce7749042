"""What all tests share: which event loop they run on, and that nothing in it ends unnoticed.

An async test runs on uvloop, as the daemons do; `--event-loop asyncio-debug` runs all of them on asyncio in
debug mode instead. Marks: `each_loop` (on both, one after the other), `virtual_time` (timers cost no time).
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePath
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.support.loops import LOOPS, new_loop

# Machines that run tests are shared: how long one example takes says nothing about the code.
settings.register_profile(
    "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("tests")

# They are long, and use none of the servers that the other tests of their folder share.
_WITH_SERVERS_OF_THEIR_OWN = {
    "test_access_control",
    "test_apache_cluster",
    "test_examples",
    "test_pipeline",
    "test_store_interchange",
    "test_pop_interchange",
}

_loop_errors: list[dict[str, Any]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--event-loop", choices=["uvloop", "asyncio-debug"], default="uvloop", help="what async tests run on"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "each_loop: run on uvloop and on asyncio in debug mode")
    config.addinivalue_line("markers", "virtual_time: run on a loop whose timers cost no time")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # In the background of a shell: programs that tests start, and end by Ctrl-C, would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _FilesAndFolders(config, log)


class _FilesAndFolders(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """With `-n 2`: a worker takes a file at a time, or a folder whose tests share servers."""

    def _split_scope(self, nodeid: str) -> str:
        path = PurePath(nodeid.partition("::")[0])
        shares = path.parent.name in {"interop", "spark"} and path.stem not in _WITH_SERVERS_OF_THEIR_OWN
        return str(path.parent if shares else path)


def pytest_collection_finish() -> None:
    # What was imported stays for good: the collection after each async test need not look at it.
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
    """What nobody handled in this test's event loop; a test that expects some takes them out of the list."""
    _loop_errors.clear()
    yield _loop_errors
    if request.node.get_closest_marker("asyncio") is not None:
        gc.collect()  # exceptions of futures that nobody looked at are told of when the future goes
    errors = [_described(context) for context in _loop_errors]
    _loop_errors.clear()
    assert not errors, "nobody handled in the event loop:\n" + "\n".join(errors)


def _described(context: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in context.items() if key != "source_traceback")
