"""The load of a run: producers and consumers of this SDK, as a program on a host of its own.

    python -m tests.cluster.load NAMESRV HISTORY --rate MESSAGES_PER_SECOND

It prints `ready` once consumers and producers run, and `progress` regularly. A line on the standard input
ends the producers. Then it prints `done` as soon as every group has been given every acknowledged message,
or after `--drain` seconds without a new one.

Sends are begun at a constant rate, whether earlier ones have been answered or not, so that the history shows
how long a fault lasted for clients. A send is not retried: each body is in the log at most once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import IO, Final

from rmq_client import (
    ClientError,
    ClientSettings,
    ConsumerTiming,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    RetryPolicy,
    SimpleConsumer,
)
from tests.cluster.history import Delivery, Send, line_of

TOPIC: Final = "Faults"
QUEUES: Final = 4
PUSH_GROUP: Final = "Pushed"
POP_GROUP: Final = "Popped"
GROUPS: Final = (PUSH_GROUP, POP_GROUP)

_PRODUCERS: Final = 2
_SEND_SECONDS: Final = 3.0
_MOST_IN_FLIGHT: Final = 500
_PADDING: Final = (0, 100, 900, 3000)
_INVISIBLE_SECONDS: Final = 10.0
_AWAIT_SECONDS: Final = 2.0
_PROGRESS_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 0.2
# Clients that notice a failover within seconds.
_SETTINGS: Final = ClientSettings(heartbeat_seconds=2.0, route_refresh_seconds=1.0)
_TIMING: Final = ConsumerTiming(
    rebalance_seconds=2.0, commit_seconds=1.0, error_pause_seconds=0.5, suspended_pause_seconds=0.2
)


class Load:
    """The producers and consumers of one run."""

    def __init__(self, namesrv: str, history: IO[str], rate: float, drain_seconds: float) -> None:
        self._namesrv = namesrv
        self._history = history
        self._pause_seconds = _PRODUCERS / rate
        self._drain_seconds = drain_seconds
        self._chance = random.Random(0)
        self._end = asyncio.Event()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._to_deliver: dict[str, set[str]] = {group: set() for group in GROUPS}
        self._delivered: dict[str, set[str]] = {group: set() for group in GROUPS}
        self._acknowledged = 0
        self._last_delivery = time.monotonic()

    async def run(self) -> None:
        """Produce until the end is told; consume until everything is delivered."""
        async with AsyncExitStack() as stack:
            # One member: when queues move between members, a late commit may take an offset back.
            consumer = PushConsumer(
                self._namesrv,
                group=PUSH_GROUP,
                topics=[TOPIC],
                listener=self._pushed,
                consume_from="first",
                timing=_TIMING,
                settings=replace(_SETTINGS, instance_name="push"),
            )
            await stack.enter_async_context(consumer)
            settings = replace(_SETTINGS, instance_name="pop")
            simple = SimpleConsumer(
                self._namesrv,
                group=POP_GROUP,
                topics=[TOPIC],
                consume_from="first",
                settings=settings,
            )
            await stack.enter_async_context(simple)
            helpers = [self._spawn(self._pop(simple)), self._spawn(self._tell_progress())]
            try:
                await self._produce_all(stack)
                await self._drain()
            finally:
                for helper in helpers:
                    helper.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)
        _say("done", acknowledged=self._acknowledged)

    def end(self) -> None:
        """End the producers."""
        self._end.set()

    # --- producers ---

    async def _produce_all(self, stack: AsyncExitStack) -> None:
        producers = []
        for number in range(_PRODUCERS):
            settings = replace(_SETTINGS, instance_name=f"send{number}")
            producer = Producer(
                self._namesrv,
                group="Sender",
                timeout_seconds=_SEND_SECONDS,
                retry=RetryPolicy(retries=0),
                settings=settings,
            )
            await stack.enter_async_context(producer)
            producers.append(producer)
        _say("ready")
        await asyncio.gather(*(self._produce(number, each) for number, each in enumerate(producers)))
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    async def _produce(self, producer_number: int, producer: Producer) -> None:
        for number in count():
            if self._end.is_set():
                return
            if len(self._in_flight) < _MOST_IN_FLIGHT:
                body = f"{producer_number}-{number}-" + "x" * self._chance.choice(_PADDING)
                task = self._spawn(self._send(producer, body))
                self._in_flight.add(task)
                task.add_done_callback(self._in_flight.discard)
            await asyncio.sleep(self._pause_seconds)

    async def _send(self, producer: Producer, body: str) -> None:
        began = time.monotonic()
        try:
            result = await producer.send(Message(TOPIC, body.encode()))
        except ClientError as error:
            self._write(Send(body, began, time.monotonic(), f"{type(error).__name__}"))
            return
        sent = Send(
            body,
            began,
            time.monotonic(),
            result.status.value,
            TOPIC,
            result.queue.queue_id,
            result.queue_offset,
            result.broker_address,
        )
        self._write(sent)
        if sent.is_acknowledged:
            self._acknowledged += 1
            for group in GROUPS:
                self._to_deliver[group].add(body)

    # --- consumers ---

    async def _pushed(self, messages: list[MessageExt]) -> None:
        for message in messages:
            self._deliver(PUSH_GROUP, message, is_first=message.reconsume_times == 0)

    async def _pop(self, consumer: SimpleConsumer) -> None:
        while True:
            try:
                received = await consumer.receive(
                    max_messages=32, invisible_seconds=_INVISIBLE_SECONDS, timeout_seconds=_AWAIT_SECONDS
                )
                for message in received:
                    self._deliver(POP_GROUP, message, is_first=message.delivery_attempt <= 1)
                await asyncio.gather(*map(consumer.ack, received), return_exceptions=True)
            except ClientError:
                await asyncio.sleep(_RETRY_SECONDS)

    def _deliver(self, group: str, message: MessageExt, *, is_first: bool) -> None:
        body = message.body.decode()
        place = message.topic, message.queue_id, message.queue_offset
        self._write(Delivery(group, body, *place, time.monotonic(), is_first))
        if body not in self._delivered[group]:
            self._delivered[group].add(body)
            self._last_delivery = time.monotonic()

    async def _drain(self) -> None:
        """Wait until everything acknowledged is delivered."""
        self._last_delivery = time.monotonic()
        while any(self._to_deliver[group] - self._delivered[group] for group in GROUPS):
            if time.monotonic() - self._last_delivery > self._drain_seconds:
                return
            await asyncio.sleep(_PROGRESS_SECONDS)

    # --- both ---

    async def _tell_progress(self) -> None:
        while True:
            delivered = {group: len(bodies) for group, bodies in self._delivered.items()}
            _say("progress", acknowledged=self._acknowledged, delivered=delivered)
            await asyncio.sleep(_PROGRESS_SECONDS)

    def _write(self, event: Send | Delivery) -> None:
        self._history.write(line_of(event))

    @staticmethod
    def _spawn(work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)


def _say(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


async def main() -> None:
    """Run the load."""
    parser = argparse.ArgumentParser()
    parser.add_argument("namesrv")
    parser.add_argument("history", type=Path)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--drain", type=float, default=30.0)
    chosen = parser.parse_args()
    with chosen.history.open("w") as history:
        load = Load(chosen.namesrv, history, chosen.rate, chosen.drain)
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), load.end)
        await load.run()


if __name__ == "__main__":
    asyncio.run(main())
