"""Rebuild of all queues and the index from the log: ours and Apache's broker, on copies of one log."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.comparison import Figure, Side, alternate
from benchmarks.filling import topic_name
from benchmarks.store_bench import (
    GIBIBYTE,
    StoreBench,
    apache_broker,
    fill,
    has_message,
    own_broker,
    start_seconds,
)
from rmq_remoting.codes import RequestCode
from tests.support.apache import ApacheBroker
from tests.support.broker_requests import request
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.processes import run_command
from tests.support.raw_client import raw_client

_LOG_BYTES = GIBIBYTE
_RECORD_BYTES = 256
_QUEUES = 8
_POLL_SECONDS = 0.02
_INDEX_SECONDS = 900.0


async def rebuild(bench: StoreBench) -> Sequence[Figure]:
    """Full rebuild of queues and index from a log of 1 GiB with messages of 256 B."""
    size = bench.scaled(_LOG_BYTES)
    messages = size // _RECORD_BYTES
    bench.needs_disk(3 * size + 2 * GIBIBYTE)
    folder = bench.folder("rebuild")
    await fill(folder / "ours" / "store", {}, messages=messages, record_bytes=_RECORD_BYTES, queues=_QUEUES)
    shutil.copytree(folder / "ours" / "store", folder / "peer" / "store")
    what = f"queues and index from a log of {size / GIBIBYTE:.3g} GiB, messages of 256 B"
    figures = [Figure(f"{what}: by a start", "s", at_most=1.0)]
    async with OwnNamesrv() as ours_at, OwnNamesrv() as peer_at:
        ours = own_broker(ours_at.address, folder / "ours")
        peer = apache_broker(peer_at.address, folder / "peer")
        try:
            await alternate(figures, _start(ours, messages), _start(peer, messages), bench.rounds)
            if importlib.util.find_spec("rmq_broker.store_tool.main") is not None:
                repaired = Figure(f"{what}: by `rmq-store repair`", "s", at_most=1.0)
                figures.append(repaired)
                await alternate([repaired], _repair(ours.store_path), _start(peer, messages), bench.rounds)
        finally:
            ours.close()
            peer.close()
    return figures


def _start(broker: OwnBroker | ApacheBroker, messages: int) -> Side:
    async def side() -> Sequence[float]:
        _remove_all_but_the_log(broker.store_path)
        began = time.monotonic()
        await start_seconds(broker)
        # The index may still be built in the background; messages are found in the order of the log.
        while not await has_message(broker.port, topic_name(0), messages - 1):
            if time.monotonic() - began > _INDEX_SECONDS:
                raise TimeoutError(f"the index was not built within {_INDEX_SECONDS:g} s")
            await asyncio.sleep(_POLL_SECONDS)
        seconds = time.monotonic() - began
        await _check(broker, messages)
        broker.kill()
        (broker.store_path / "abort").unlink(missing_ok=True)
        return (seconds,)

    return side


def _repair(root: Path) -> Side:
    async def side() -> Sequence[float]:
        _remove_all_but_the_log(root)
        command = [sys.executable, "-m", "rmq_broker.store_tool.main", "repair", str(root), "--discard"]
        finished = await run_command(command, timeout_s=_INDEX_SECONDS)
        if finished.exit_code != 0:
            raise RuntimeError(str(finished))
        return (finished.seconds,)

    return side


def _remove_all_but_the_log(root: Path) -> None:
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name, ignore_errors=True)
    for path in (root / "abort", root / "rmq_checkpoint"):
        path.unlink(missing_ok=True)
    os.sync()  # write-back of removed files must not overlap the measurement


async def _check(broker: OwnBroker | ApacheBroker, messages: int) -> None:
    async with raw_client(broker.port) as client:
        ends = [
            await client.ask(request(RequestCode.GET_MAX_OFFSET, topic=topic_name(0), queueId=queue_id))
            for queue_id in range(_QUEUES)
        ]
    found = sum(int(answer.ext_fields["offset"]) for answer in ends)
    if found != messages:
        raise RuntimeError(f"{broker.home}: the queues have {found} of {messages} messages")
