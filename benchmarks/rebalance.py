"""Time until a new member of a consumer group consumes: our SDK, compared with Apache's Java client.

python -m benchmarks.rebalance 127.0.0.1:9876 Topic group     the measurement of one process with our SDK

A consumer has all queues of a topic with constant traffic. A second consumer in the same process joins its
group and leaves it again, several times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import uvloop

from benchmarks.bench import Bench
from benchmarks.comparison import Figure, alternate
from rmq_client import Admin, ClientSettings, Message, MessageExt, MessageQueue, Producer, PushConsumer

_TOPIC = "Rebalanced"
_QUEUES = 8
_JOINS = 5
_WARM_UP_JOINS = 2
# One message per queue in this interval, which is the resolution of the measurement.
_SEND_EVERY_SECONDS = 0.01
_TIMEOUT_SECONDS = 60.0


async def rebalance(bench: Bench) -> Sequence[Figure]:
    """A second member joins a group on 8 queues of our broker: our SDK, compared with the Java client."""
    what = f"our SDK (peer: Java client): a member joins a group on {_QUEUES} queues of our broker"
    figures = [
        Figure(f"{what}; until it consumes", "ms", at_most=1.0),
        Figure(f"{what}; until it consumes from all {_QUEUES // 2} queues of its share", "ms", at_most=1.0),
    ]
    address = bench.ours.namesrv_address

    async def ours() -> Sequence[float]:
        return await _in_a_process(address, f"joined-{uuid.uuid4().hex[:8]}")

    async def peer() -> Sequence[float]:
        group = f"joined-{uuid.uuid4().hex[:8]}"
        result = await bench.client("ours").join(
            _TOPIC, group, queues=_QUEUES, joins=_JOINS, warm_up_joins=_WARM_UP_JOINS
        )
        return float(result.values["firstMillis"]), float(result.values["allMillis"])

    async with Admin(address) as admin:
        await admin.create_topic(_TOPIC, queues=_QUEUES)
    async with _sending(address):
        await alternate(figures, ours, peer, bench.rounds)
    return figures


@asynccontextmanager
async def _sending(namesrv: str) -> AsyncIterator[None]:
    """Send to all queues while the block runs."""
    async with Admin(namesrv) as admin:
        queues = (await admin.topic_route(_TOPIC)).write_queues
    async with Producer(namesrv, group="rebalance") as producer:

        async def send(queue: MessageQueue) -> None:
            while True:
                await producer.send(Message(_TOPIC, b"x"), queue=queue)
                await asyncio.sleep(_SEND_EVERY_SECONDS)

        senders = [asyncio.ensure_future(send(queue)) for queue in queues]
        try:
            yield
        finally:
            for sender in senders:
                sender.cancel()
            for outcome in await asyncio.gather(*senders, return_exceptions=True):
                if isinstance(outcome, Exception):
                    raise outcome


async def _in_a_process(namesrv: str, group: str) -> Sequence[float]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.rebalance", namesrv, _TOPIC, group, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the SDK's members ended with {process.returncode}")
    first_ms, all_ms = json.loads(output)
    return first_ms, all_ms


class _Member:
    """A consumer, and the times of the first message of each queue."""

    def __init__(self, namesrv: str, topic: str, group: str, name: str) -> None:
        self._began = 0.0
        self._seconds: dict[int, float] = {}
        self._news = asyncio.Event()
        self._consumer = PushConsumer(
            namesrv,
            group=group,
            topics=[topic],
            listener=self._listen,
            consume_from="first",
            settings=ClientSettings(instance_name=name),
        )

    async def start(self) -> None:
        self._began = time.perf_counter()
        await self._consumer.start()

    async def stop(self) -> None:
        await self._consumer.stop()

    def forget(self) -> None:
        self._seconds.clear()

    async def until_queues(self, count: int) -> tuple[float, float]:
        """Wait for messages of `count` queues; return the times of the first and the last of them, in ms."""
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while len(self._seconds) < count:
                self._news.clear()
                await self._news.wait()
        return min(self._seconds.values()) * 1000, max(self._seconds.values()) * 1000

    async def _listen(self, messages: list[MessageExt]) -> None:
        if messages[0].queue_id not in self._seconds:
            self._seconds[messages[0].queue_id] = time.perf_counter() - self._began
            self._news.set()


async def _join(namesrv: str, topic: str, group: str) -> tuple[float, float]:
    """Return the medians of the counted joins, in ms."""
    joins: list[tuple[float, float]] = []
    standing = _Member(namesrv, topic, group, "standing")
    await standing.start()
    await standing.until_queues(_QUEUES)
    for number in range(_WARM_UP_JOINS + _JOINS):
        joining = _Member(namesrv, topic, group, f"joining{number}")
        await joining.start()
        joins.append(await joining.until_queues(_QUEUES // 2))
        await joining.stop()
        standing.forget()
        await standing.until_queues(_QUEUES)
    await standing.stop()
    first_ms, all_ms = zip(*joins[_WARM_UP_JOINS:], strict=True)
    return statistics.median(first_ms), statistics.median(all_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("namesrv")
    parser.add_argument("topic", help="a topic to which somebody sends all the time")
    parser.add_argument("group", help="a new one")
    chosen = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(_join(chosen.namesrv, chosen.topic, chosen.group))))


if __name__ == "__main__":
    main()
