"""Unhandled errors in loops of other threads: the suite's own check sees only the loop of a test."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest


class _Keeper(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(self.format(record))


@pytest.fixture(autouse=True)
def quiet_loops() -> Iterator[None]:
    """Fail a test that leaves an unhandled exception in any loop of the process."""
    keeper = _Keeper()
    logger = logging.getLogger("asyncio")
    logger.addHandler(keeper)
    yield
    gc.collect()
    gc.freeze()  # the collections after later tests skip all that outlives this one
    logger.removeHandler(keeper)
    assert not keeper.records, "\n".join(keeper.records)
