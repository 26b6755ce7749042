"""Timed messages: their lateness, and the cost of a million pending ones."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from benchmarks.comparison import Figure, Side, alternate, repeat
from benchmarks.store_bench import MEBIBYTE, StoreBench, apache_broker, own_broker, start_seconds
from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.message import MessageExt
from tests.support.apache import ApacheBroker
from tests.support.broker_requests import create_topic, pull, pulled, request, send, sent
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.raw_client import RawClient, raw_client

_TOPIC = "Timed"
_BODY = b"x" * 128
_A_SECOND = 2000
# The sends come first, without overlap.
_LEAD_MS = 10_000
_BACKLOG = 1_000_000
_HOUR_MS = 3600 * 1000
# Further ahead than the measurement takes, within what brokers allow.
_BACKLOG_MS = (_HOUR_MS, 40 * _HOUR_MS)
_A_WRITE = 64
_IDLE_SECONDS = 5.0
_POLL_SECONDS = 0.05
_ENTERED_SECONDS = 300.0


async def timers(bench: StoreBench) -> Sequence[Figure]:
    """Lateness of 2,000 timed messages per second."""
    figures = [
        Figure(f"{_A_SECOND:,} messages a second with a time: late by, p99", "s", ours_at_most=1.2),
        Figure("the same, median", "s"),
    ]
    async with OwnNamesrv() as namesrv:
        ours = own_broker(namesrv.address, bench.folder("timers", "ours"))
        peer = apache_broker(namesrv.address, bench.folder("timers", "peer"))
        try:
            for broker in (ours, peer):
                await broker.start()
                async with raw_client(broker.port) as client:
                    assert (await client.ask(create_topic(_TOPIC, 1))).code == ResponseCode.SUCCESS
            await alternate(
                figures, _lateness(ours, bench.seconds), _lateness(peer, bench.seconds), bench.rounds
            )
        finally:
            ours.close()
            peer.close()
    return figures


async def timer_backlog(bench: StoreBench) -> Sequence[Figure]:
    """1,000,000 pending timed messages: start, memory, CPU while none is due."""
    count = bench.scaled(_BACKLOG)
    figures = [
        Figure(f"{count:,} messages wait: from start to all known", "s", ours_at_most=5.0),
        Figure("memory that they take", "MiB", ours_at_most=200.0),
        Figure("broker CPU while none is due", "% of a core", ours_at_most=1.0),
    ]
    async with OwnNamesrv() as namesrv:
        ours = own_broker(namesrv.address, bench.folder("timer-backlog"))
        try:
            await start_seconds(ours)
            empty_bytes = ours.process.usage().anonymous_bytes
            async with raw_client(ours.port) as client:
                assert (await client.ask(create_topic(_TOPIC, 1))).code == ResponseCode.SUCCESS
                chance = random.Random(1)
                now_ms = _now_ms()
                await _send_all(client, (now_ms + chance.randrange(*_BACKLOG_MS) for _ in range(count)))
                await _until_waiting(client, count)

            async def side() -> Sequence[float]:
                await ours.stop()
                began = time.monotonic()
                await start_seconds(ours)
                async with raw_client(ours.port) as client:
                    await _until_waiting(client, count)
                seconds = time.monotonic() - began
                before = ours.process.usage()
                await asyncio.sleep(_IDLE_SECONDS)
                after = ours.process.usage()
                percent = 100 * (after.cpu_seconds - before.cpu_seconds) / _IDLE_SECONDS
                return seconds, (after.anonymous_bytes - empty_bytes) / MEBIBYTE, percent

            await repeat(figures, side, bench.rounds)
        finally:
            ours.close()
    return figures


def _lateness(broker: OwnBroker | ApacheBroker, seconds: int) -> Side:
    async def side() -> Sequence[float]:
        count = _A_SECOND * seconds
        async with raw_client(broker.port) as client:
            begin = await _end_of(client)
            first_ms = _now_ms() + _LEAD_MS
            await _send_all(client, (first_ms + number * 1000 // _A_SECOND for number in range(count)))
            if _now_ms() > first_ms:
                raise RuntimeError(f"{count} sends took longer than {_LEAD_MS} ms: no time was left to wait")
            messages = await _read(client, begin, count)
        late = [message.store_timestamp - int(message.properties["TIMER_DELIVER_MS"]) for message in messages]
        return statistics.quantiles(late, n=100)[98] / 1000, statistics.median(late) / 1000

    return side


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _send_all(client: RawClient, deliver_at_ms: Iterable[int]) -> None:
    """Send a message for each time, with several sends in flight.

    A send that a cold broker refuses is repeated.
    """
    refused = list(deliver_at_ms)
    while refused:
        times, refused = iter(refused), []
        under_way: dict[int, int] = {}
        while some := list(islice(times, _A_WRITE)):
            requests = [send(_TOPIC, _BODY, properties=_timed(each)) for each in some]
            client.send(*requests)
            refused += await _refused(client, under_way)
            under_way = {each.opaque: at for each, at in zip(requests, some, strict=True)}
        refused += await _refused(client, under_way)


async def _refused(client: RawClient, under_way: Mapping[int, int]) -> list[int]:
    """Return the times of the sends that a busy broker refused."""
    refused = []
    for _ in under_way:
        answer = await client.receive()
        if answer.code == ResponseCode.SYSTEM_BUSY:
            refused.append(under_way[answer.opaque])
        else:
            sent(answer)
    return refused


def _timed(deliver_at_ms: int) -> Mapping[str, str]:
    return {"TIMER_DELIVER_MS": str(deliver_at_ms)}


async def _read(client: RawClient, begin: int, count: int) -> list[MessageExt]:
    """Wait for `count` messages from an offset on, and return them."""
    messages: list[MessageExt] = []
    while len(messages) < count:
        answer = await client.ask(pull(_TOPIC, offset=begin + len(messages)))
        if answer.code == ResponseCode.SUCCESS:
            messages += pulled(answer)
        else:
            await asyncio.sleep(_POLL_SECONDS)
    return messages


async def _until_waiting(client: RawClient, count: int) -> None:
    """Wait until the broker reports `count` pending messages."""
    async with asyncio.timeout(_ENTERED_SECONDS):
        while True:
            answer = await client.ask(request(RequestCode.GET_BROKER_RUNTIME_INFO))
            if int(KVTable.decode(answer.body).table["timerCongestNum"]) >= count:
                return
            await asyncio.sleep(_POLL_SECONDS)


async def _end_of(client: RawClient) -> int:
    answer = await client.ask(request(RequestCode.GET_MAX_OFFSET, topic=_TOPIC, queueId=0))
    return int(answer.ext_fields["offset"])
