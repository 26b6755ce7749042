"""Three brokers of which one fails during sends, for the fault tolerance of producers."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rmq_client import Admin, ClientError, Message, Producer, PullConsumer, SendResult
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.ports import LOOPBACK, free_broker_port
from tests.support.slow_relay import SlowRelay, slow_relay

TOPIC: Final = "Faults"
_BROKERS: Final = 3
_QUEUES_OF_A_BROKER: Final = 4
QUEUES: Final = _BROKERS * _QUEUES_OF_A_BROKER
# Another address of this machine: the relay listens there on the port that the broker has on LOOPBACK.
_RELAY_HOST: Final = "127.0.0.2"
_TICK_SECONDS: Final = 0.02
_READ_SECONDS: Final = 3.0
_SMALL_FILES: Final = {"mappedFileSizeCommitLog": str(64 * 1024 * 1024)}


class BrokerFault(Enum):
    """The fault of a broker; each fault hits another broker."""

    SLOWED = 0  # every answer takes longer
    FROZEN = 1  # SIGSTOP: connections stay open, without answers
    STOPPED = 2


class ThreeBrokers:
    """A cluster with a topic of some queues on each of its brokers; the first is behind a relay."""

    def __init__(self, namesrv: OwnNamesrv, brokers: Sequence[OwnBroker], relay: SlowRelay) -> None:
        self.address = namesrv.address
        self._brokers = brokers
        self._relay = relay

    async def break_one(self, fault: BrokerFault, slow_seconds: float = 0.5) -> None:
        """Let one broker fail; `slow_seconds`: how much longer the answers of a slow one take."""
        victim = self._brokers[fault.value]
        if fault is BrokerFault.STOPPED:
            await victim.stop()
        elif fault is BrokerFault.FROZEN:
            os.kill(victim.process.pid, signal.SIGSTOP)
        else:
            self._relay.delay_seconds = slow_seconds

    async def mend(self, fault: BrokerFault) -> None:
        """End the fault."""
        victim = self._brokers[fault.value]
        if fault is BrokerFault.STOPPED:
            await victim.start()
        elif fault is BrokerFault.FROZEN:
            os.kill(victim.process.pid, signal.SIGCONT)
        else:
            self._relay.delay_seconds = 0.0

    async def stored(self, wanted: set[bytes] | None = None) -> Counter[bytes]:
        """Return how often each body is stored on any broker; with `wanted`, wait until all of these are."""
        bodies: Counter[bytes] = Counter()
        async with PullConsumer(self.address, group="reader", consume_from="first") as reader:
            await reader.assign(await reader.queues(TOPIC))
            while messages := await reader.poll(max_messages=1000, timeout_seconds=_READ_SECONDS):
                bodies.update(message.body for message in messages)
                if wanted is not None and wanted <= bodies.keys():
                    break
        return bodies


@asynccontextmanager
async def three_brokers() -> AsyncIterator[ThreeBrokers]:
    """Start the three brokers."""
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(OwnNamesrv())
        port = free_broker_port()
        relay = await stack.enter_async_context(slow_relay(_RELAY_HOST, port, (LOOPBACK, port)))
        behind_relay = {**_SMALL_FILES, "brokerIP1": _RELAY_HOST}
        brokers = [
            OwnBroker(namesrv.address, broker_name="broker-0", port=port, settings=behind_relay),
            *(
                OwnBroker(namesrv.address, broker_name=f"broker-{number}", settings=_SMALL_FILES)
                for number in range(1, _BROKERS)
            ),
        ]
        async with asyncio.TaskGroup() as starting:
            for broker in brokers:
                starting.create_task(stack.enter_async_context(broker))
        async with Admin(namesrv.address) as admin:
            await admin.create_topic(TOPIC, queues=_QUEUES_OF_A_BROKER)
        yield ThreeBrokers(namesrv, brokers, relay)


@dataclass(slots=True)
class PacedSend:
    """One send: its begin, its duration and its outcome."""

    body: bytes
    began: float
    seconds: float
    result: SendResult | ClientError


class PacedSends:
    """Sends at a fixed rate, independent of the answers."""

    def __init__(self, producer: Producer, per_second: int, body_bytes: int = 1024) -> None:
        self.ended: list[PacedSend] = []
        self._producer = producer
        self._per_second = per_second
        self._filling = b"x" * body_bytes
        self._started = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def run(self, seconds: float) -> float:
        """Send for a time; return when it began. Sends may still be pending."""
        began = self._loop.time()
        first = self._started
        while (elapsed := self._loop.time() - began) < seconds:
            while self._started - first < elapsed * self._per_second:
                task = asyncio.create_task(self._send(self._started))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                self._started += 1
            await asyncio.sleep(_TICK_SECONDS)
        return began

    async def end(self) -> None:
        """Wait for the pending sends."""
        await asyncio.gather(*self._tasks)

    async def _send(self, number: int) -> None:
        body = (b"%d:" % number + self._filling)[: len(self._filling)]
        began = self._loop.time()
        result: SendResult | ClientError
        try:
            result = await self._producer.send(Message(TOPIC, body))
        except ClientError as error:
            result = error
        self.ended.append(PacedSend(body, began, self._loop.time() - began, result))

    @property
    def failures(self) -> list[ClientError]:
        """The errors."""
        return [send.result for send in self.ended if isinstance(send.result, ClientError)]

    @property
    def acknowledged(self) -> set[bytes]:
        """The bodies of the acknowledged messages."""
        return {send.body for send in self.ended if isinstance(send.result, SendResult)}

    def median_seconds(self, begin: float, end: float) -> float:
        """The median latency of the sends that began in an interval, failed ones included."""
        return statistics.median(send.seconds for send in self.ended if begin <= send.began < end)
