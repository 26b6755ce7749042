"""Load on a broker over the network, and the check that nothing of it was lost."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Self

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.headers.send import SendMessageResponseHeader
from rmq_remoting.message import MessageExt
from tests.support.broker_requests import create_topic, pull, pulled, request, send
from tests.support.raw_client import RawClient, raw_client
from tests.support.waiting import until

Queue = tuple[str, int]
# Pending requests of each connection.
_WINDOW = 32
_QUEUES_PER_TOPIC = 4
_runs = itertools.count()


class Acknowledged:
    """The messages that the broker has acknowledged: body by queue and offset."""

    def __init__(self) -> None:
        self._bodies: dict[tuple[Queue, int], bytes] = {}
        self._message_ids: dict[str, bytes] = {}

    def add(self, topic: str, header: SendMessageResponseHeader, body: bytes) -> None:
        """Add an acknowledged send. AssertionError if its place was another message's."""
        place = ((topic, header.queue_id), header.queue_offset)
        assert place not in self._bodies, f"offset used twice: {place}"
        assert header.msg_id not in self._message_ids, f"log offset used twice: {header.msg_id}"
        self._bodies[place] = self._message_ids[header.msg_id] = body

    def __len__(self) -> int:
        return len(self._bodies)

    def check(self, stored: dict[Queue, list[MessageExt]]) -> None:
        """Check that all acknowledged messages are at their places, without gaps and duplicates."""
        for queue, messages in stored.items():
            offsets = [message.queue_offset for message in messages]
            assert offsets == list(range(len(messages))), f"gaps or duplicates in {queue}"
            bodies = [message.body for message in messages]
            assert len(set(bodies)) == len(bodies), f"a message is stored twice in {queue}"
        for (queue, offset), body in self._bodies.items():
            assert offset < len(stored[queue]), f"lost: {queue} offset {offset} of {len(stored[queue])}"
            assert stored[queue][offset].body == body
        by_id = {message.offset_msg_id: message.body for messages in stored.values() for message in messages}
        assert self._message_ids.items() <= by_id.items()


class Load:
    """Connections that send at full speed until they are cut or the block ends.

    With the `acknowledged` of an earlier load, the numbering continues after that load.
    """

    def __init__(
        self, port: int, *, connections: int, topics: int, acknowledged: Acknowledged | None = None
    ) -> None:
        self.acknowledged = Acknowledged() if acknowledged is None else acknowledged
        self.refused = 0
        self.queues = [
            (f"Load{topic}", queue) for topic in range(topics) for queue in range(_QUEUES_PER_TOPIC)
        ]
        self._port = port
        self._connections = connections
        self._run = next(_runs)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        async with raw_client(self._port) as client:
            for topic in {topic for topic, _ in self.queues}:
                await client.ask(create_topic(topic, _QUEUES_PER_TOPIC))
        self._tasks = [asyncio.create_task(self._send(number)) for number in range(self._connections)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def until_acknowledged(self, count: int, timeout_seconds: float = 20.0) -> None:
        """Wait until `count` messages have been acknowledged."""
        await until(lambda: len(self.acknowledged) >= count, timeout_seconds)

    async def _send(self, connection: int) -> None:
        try:
            async with raw_client(self._port) as client:
                await self._send_by(client, connection)
        except (EOFError, OSError):
            return  # the broker has ended

    async def _send_by(self, client: RawClient, connection: int) -> None:
        under_way: dict[int, tuple[str, bytes]] = {}
        number = 0
        while True:
            while len(under_way) < _WINDOW:
                topic, queue = self.queues[number % len(self.queues)]
                body = b"%d-%d-%d-" % (self._run, connection, number) + b"x" * (number % 300)
                command = send(topic, body, queue_id=queue)
                under_way[command.opaque] = (topic, body)
                client.send(command)
                number += 1
            answer = await client.receive()
            topic, body = under_way.pop(answer.opaque)
            if answer.code == ResponseCode.SUCCESS:
                self.acknowledged.add(topic, SendMessageResponseHeader.decode(answer.ext_fields), body)
            else:
                self.refused += 1


async def read_all(port: int, queues: Iterable[Queue]) -> dict[Queue, list[MessageExt]]:
    """Read all messages of some queues."""
    stored: dict[Queue, list[MessageExt]] = {}
    async with raw_client(port) as client:
        for topic, queue in queues:
            asked = request(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=queue)
            end = int((await client.ask(asked)).ext_fields["offset"])
            messages = stored[topic, queue] = []
            while len(messages) < end:
                messages += pulled(await client.ask(pull(topic, queue_id=queue, offset=len(messages))))
    return stored
