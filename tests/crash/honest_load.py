"""An honest producer and an honest consumer of our SDK, whose messages are counted and timed."""

from __future__ import annotations

import asyncio
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from rmq_client import ClientError, Message, MessageExt, Producer, PushConsumer
from tests.support.waiting import until

_NUMBER: Final = struct.Struct(">q")
_PADDING: Final = b"x" * 248
_RECEIVE_SECONDS: Final = 60.0
_BATCH: Final = 32


@dataclass(frozen=True, slots=True)
class Progress:
    """Messages so far."""

    at: float
    sent: int
    received: int


class HonestLoad:
    """`in_flight` tasks that send one message after the other, and a consumer of all of them."""

    def __init__(self, namesrv: str, topic: str, in_flight: int) -> None:
        self.failures: list[str] = []
        self.duplicates = 0
        self._topic = topic
        self._in_flight = in_flight
        self._latencies: list[float] = []
        self._begun = self._sent = self._received = 0
        # A byte per message: 1 for acknowledged, 2 for received.
        self._marks = bytearray()
        self._stopped = False
        self._senders: list[asyncio.Task[None]] = []
        self._producer = Producer(namesrv, group=topic)
        self._consumer = PushConsumer(
            namesrv,
            group=topic,
            topics=topic,
            listener=self._receive,
            consume_from="first",
            max_messages=_BATCH,
        )

    async def __aenter__(self) -> Self:
        await self._producer.start()
        await self._consumer.start()
        self._senders = [asyncio.create_task(self._send()) for _ in range(self._in_flight)]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End both clients."""
        self._stopped = True
        await asyncio.gather(*self._senders)
        await self._producer.stop()
        await self._consumer.stop()

    @property
    def progress(self) -> Progress:
        """Messages acknowledged and received until now."""
        return Progress(time.monotonic(), self._sent, self._received)

    def take_latencies(self) -> list[float]:
        """Return the latencies, in seconds, of the sends since the last call, sorted."""
        taken, self._latencies = self._latencies, []
        return sorted(taken)

    async def stop_and_check(self) -> list[str]:
        """End the sends, wait for their messages, and return the problems."""
        self._stopped = True
        await asyncio.gather(*self._senders)
        with suppress(TimeoutError):
            await until(lambda: not self._missing(), _RECEIVE_SECONDS)
        if lost := self._missing():
            return [f"{lost} acknowledged messages were not received within {_RECEIVE_SECONDS:g} s"]
        return []

    def _missing(self) -> int:
        return self._marks.count(1)

    async def _send(self) -> None:
        while not self._stopped:
            number = self._begun
            self._begun += 1
            self._marks.append(0)
            began = time.perf_counter()
            try:
                await self._producer.send(Message(self._topic, _NUMBER.pack(number) + _PADDING))
            except ClientError as error:
                self.failures.append(repr(error))
                continue
            self._latencies.append(time.perf_counter() - began)
            self._sent += 1
            self._marks[number] |= 1

    async def _receive(self, messages: list[MessageExt]) -> None:
        for message in messages:
            (number,) = _NUMBER.unpack_from(message.body)
            if self._marks[number] & 2:
                self.duplicates += 1
            else:
                self._marks[number] |= 2
                self._received += 1
