"""A name server in this process, on a free port."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rmq_namesrv.namesrv import Namesrv
from rmq_testing.settings import namesrv_configuration

__all__ = ["namesrv_configuration", "running_namesrv"]


@asynccontextmanager
async def running_namesrv(
    folder: Path, *, clock: Callable[[], float] = time.monotonic, **keys: Any
) -> AsyncIterator[Namesrv]:
    """A running name server; its address is `.address`."""
    namesrv = Namesrv(namesrv_configuration(folder, **keys), clock=clock)
    try:
        await namesrv.start()
        yield namesrv
    finally:
        await namesrv.stop()
