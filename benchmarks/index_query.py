"""Queries by key in a large index of our broker, over a connection."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence

from benchmarks.comparison import Figure, repeat
from benchmarks.filling import topic_name, unique_key
from benchmarks.store_bench import StoreBench, fill, own_broker, start_seconds
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from tests.support.broker_requests import request
from tests.support.raw_client import RawClient, raw_client

_MESSAGES = 10_000_000
_RECORD_BYTES = 170
_QUERIES = 2000


async def index_query(bench: StoreBench) -> Sequence[Figure]:
    """A query by key in an index of 10 million messages, warm."""
    messages = bench.scaled(_MESSAGES)
    bench.needs_disk(3 * messages * _RECORD_BYTES)
    folder = bench.folder("index")
    await fill(folder / "store", {}, messages=messages, record_bytes=_RECORD_BYTES)
    what = f"query by key, index of {messages:,} messages, warm, with its round trip"
    figures = [Figure(f"{what}: median", "ms", ours_at_most=1.0), Figure(f"{what}: p99", "ms")]
    broker = own_broker("", folder)
    try:
        await start_seconds(broker)
        numbers = random.Random(7).sample(range(messages), min(_QUERIES, messages))
        async with raw_client(broker.port) as client:
            await _query_all(client, numbers)  # warm-up

            async def ours() -> Sequence[float]:
                times = await _query_all(client, numbers)
                return statistics.median(times) * 1000, times[int(len(times) * 0.99)] * 1000

            await repeat(figures, ours, bench.rounds)
    finally:
        broker.close()
    return figures


async def _query_all(client: RawClient, numbers: Sequence[int]) -> list[float]:
    """Return the durations of successive queries, sorted."""
    times = []
    for number in numbers:
        asked = _query(number)
        began = time.perf_counter()
        answer = await client.ask(asked)
        times.append(time.perf_counter() - began)
        if answer.code != ResponseCode.SUCCESS or unique_key(number) not in answer.body:
            raise RuntimeError(f"message {number} was not found: {answer.code} {answer.remark}")
    return sorted(times)


def _query(number: int) -> RemotingCommand:
    return request(
        RequestCode.QUERY_MESSAGE,
        topic=topic_name(0),
        key=unique_key(number).decode(),
        maxNum=32,
        beginTimestamp=0,
        endTimestamp=2**63 - 1,
    )
