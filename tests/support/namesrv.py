"""A name server in this process, on a free port."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rmq_namesrv.config import NamesrvSettings, known_keys
from rmq_namesrv.namesrv import Namesrv
from rmq_remoting.daemon.configuration import Configuration, Override, load
from tests.support.ports import LOOPBACK


def namesrv_configuration(
    folder: Path, file: Path | None = None, **keys: Any
) -> Configuration[NamesrvSettings]:
    """Settings by Apache's keys; without more, a free port on loopback, files in `folder` and no metrics."""
    chosen = {
        "bindAddress": LOOPBACK,
        "listenPort": 0,
        "kvConfigPath": folder / "kvConfig.json",
        "metricsExporterType": "DISABLE",
        **keys,
    }
    overrides = [Override(key, str(value)) for key, value in chosen.items()]
    return load(NamesrvSettings, file, overrides, known_keys)


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
