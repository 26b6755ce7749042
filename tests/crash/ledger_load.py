"""Load on a broker that may be killed at any moment: producers and a consumer that keep a ledger."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.send import SendMessageResponseHeader
from rmq_remoting.message import Message, MessageExt
from tests.support.broker_requests import create_topic, offsets, pull, pulled, request, send, send_batch
from tests.support.ledger import Ledger, Queue
from tests.support.raw_client import RawClient, raw_client
from tests.support.waiting import until

_TOPICS = ("Ledger0", "Ledger1")
_QUEUES_PER_TOPIC = 4
QUEUES: list[Queue] = [(topic, queue_id) for topic in _TOPICS for queue_id in range(_QUEUES_PER_TOPIC)]

_PRODUCERS = 8
# Pending requests of each connection.
_WINDOW = 8
_PADDING = (0, 10, 200, 900, 4000)
_BATCH_SHARE = 0.1
_HOLD_MS = 500
# A consumer that lags further behind skips to the end: faults hit the newest messages.
_MOST_BEHIND = 200
# With these codes the message is not stored, except if the remark says that its flush failed: it may be on
# the disk by then.
_MAY_BE_THERE = "the message may be lost"
_REFUSALS = {
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.NO_PERMISSION,
}
_runs = itertools.count()


@dataclass(frozen=True, slots=True)
class _Sent:
    queue: Queue
    bodies: list[bytes]


class LedgerLoad:
    """Eight producers at full speed, and a consumer at the tails of the queues."""

    def __init__(self, port: int, ledger: Ledger, chance: random.Random) -> None:
        self.answers: dict[int, int] = {}
        self._port = port
        self._ledger = ledger
        self._chance = chance
        self._run = next(_runs)
        self._tasks: list[asyncio.Task[None]] = []
        self._consuming = asyncio.Event()

    async def __aenter__(self) -> Self:
        async with raw_client(self._port) as client:
            for topic in _TOPICS:
                answer = await client.ask(create_topic(topic, _QUEUES_PER_TOPIC))
                assert answer.code == ResponseCode.SUCCESS, answer.remark
        # The consumer first, because a load may last only a fraction of a second.
        self._tasks = [asyncio.create_task(self._consume())]
        await self._consuming.wait()
        self._tasks += [asyncio.create_task(self._produce(number)) for number in range(_PRODUCERS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def until_acknowledged(self, count: int, timeout_seconds: float = 30.0) -> None:
        """Wait until `count` more messages have been acknowledged."""
        wanted = self._ledger.acknowledged_count + count
        await until(lambda: self._ledger.acknowledged_count >= wanted, timeout_seconds)

    async def until_ended(self, timeout_seconds: float = 30.0) -> None:
        """Wait until the broker has cut all connections."""
        await asyncio.wait_for(asyncio.wait(self._tasks), timeout_seconds)

    # --- producers ---

    async def _produce(self, producer: int) -> None:
        try:
            async with raw_client(self._port) as client:
                await self._send_by(client, producer)
        except (EOFError, OSError):
            return  # the broker has ended

    async def _send_by(self, client: RawClient, producer: int) -> None:
        under_way: dict[int, _Sent] = {}
        numbers = itertools.count()
        while True:
            while len(under_way) < _WINDOW:
                command, sent = self._next(producer, numbers)
                self._ledger.sending(sent.bodies)
                under_way[command.opaque] = sent
                client.send(command)
            answer = await client.receive()
            self._note(answer, under_way.pop(answer.opaque))

    def _next(self, producer: int, numbers: Iterable[int]) -> tuple[RemotingCommand, _Sent]:
        topic, queue_id = queue = self._chance.choice(QUEUES)
        count = self._chance.randrange(2, 20) if self._chance.random() < _BATCH_SHARE else 1
        bodies = [
            b"%d-%d-%d-" % (self._run, producer, number) + b"x" * self._chance.choice(_PADDING)
            for number in itertools.islice(numbers, count)
        ]
        if count == 1:
            return send(topic, bodies[0], queue_id=queue_id), _Sent(queue, bodies)
        batch = [Message(topic, body) for body in bodies]
        return send_batch(topic, batch, queue_id=queue_id), _Sent(queue, bodies)

    def _note(self, answer: RemotingCommand, sent: _Sent) -> None:
        self.answers[answer.code] = self.answers.get(answer.code, 0) + 1
        if answer.code == ResponseCode.SUCCESS:
            header = SendMessageResponseHeader.decode(answer.ext_fields)
            self._ledger.acknowledged(sent.queue, header.queue_offset, header.msg_id.split(","), sent.bodies)
        elif answer.code in _REFUSALS and _MAY_BE_THERE not in (answer.remark or ""):
            self._ledger.refused(sent.bodies)
        else:
            self._ledger.unknown(sent.bodies)

    # --- the consumer ---

    async def _consume(self) -> None:
        try:
            async with raw_client(self._port) as client:
                await self._pull_by(client)
        except (EOFError, OSError):
            return
        finally:
            self._consuming.set()

    async def _pull_by(self, client: RawClient) -> None:
        waiting: dict[int, tuple[Queue, int]] = {}

        def ask(queue: Queue, offset: int) -> None:
            command = pull(queue[0], "Reader", queue_id=queue[1], offset=offset, suspend_ms=_HOLD_MS)
            waiting[command.opaque] = (queue, offset)
            client.send(command)

        for queue, end in [(queue, await end_of(client, queue)) for queue in QUEUES]:
            ask(queue, end)
        self._consuming.set()
        while True:
            answer = await client.receive()
            queue, asked = waiting.pop(answer.opaque)
            if answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY):  # no memory for it now
                ask(queue, asked)
                continue
            if answer.code == ResponseCode.SUCCESS:
                for message in pulled(answer):
                    self._ledger.saw(message)
            next_offset, _, end = offsets(answer)
            ask(queue, end if end - next_offset > _MOST_BEHIND else next_offset)


async def end_of(client: RawClient, queue: Queue, code: int = RequestCode.GET_MAX_OFFSET) -> int:
    """Return the end of a queue, or with GET_MIN_OFFSET its begin."""
    answer = await client.ask(request(code, topic=queue[0], queueId=queue[1]))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return int(answer.ext_fields["offset"])


async def read_queues(port: int, queues: Iterable[Queue] = QUEUES) -> dict[Queue, list[MessageExt]]:
    """Read all messages of some queues; also of Apache's broker."""
    stored: dict[Queue, list[MessageExt]] = {}
    async with raw_client(port) as client:
        for queue in queues:
            offset = await end_of(client, queue, RequestCode.GET_MIN_OFFSET)
            end = await end_of(client, queue)
            messages = stored[queue] = []
            while offset < end:
                answer = await client.ask(pull(queue[0], "Checker", queue_id=queue[1], offset=offset))
                messages += pulled(answer)
                offset = messages[-1].queue_offset + 1
    return stored
