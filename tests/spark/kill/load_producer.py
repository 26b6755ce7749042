"""Load for the job: messages sent to one broker continuously, but never far ahead of the job."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Callable

from rmq_remoting.codes import ResponseCode
from rmq_remoting.headers.send import SendMessageResponseHeader
from rmq_remoting.message import Message, MessageExt
from tests.crash.ledger_load import end_of, read_queues
from tests.support.broker_requests import create_topic, send_batch
from tests.support.ledger import Ledger, Queue, Verdict
from tests.support.own_servers import OwnBroker
from tests.support.raw_client import RawClient, raw_client
from tests.support.waiting import until

_BATCH_MESSAGES = 50
_MOST_PADDING_BYTES = 300


class LoadProducer:
    """A producer for one broker with a ledger of its sends. It goes on after a restart of the broker."""

    def __init__(self, broker: OwnBroker, topic: str, queues: int, rng: random.Random) -> None:
        self.broker = broker
        self.ledger = Ledger()
        self.up = asyncio.Event()  # set while the broker is up
        self.stopping = False
        self._topic = topic
        self._queues: list[Queue] = [(topic, queue_id) for queue_id in range(queues)]
        self._rng = rng
        self._numbers = itertools.count()

    async def create_topic(self) -> None:
        async with raw_client(self.broker.port) as client:
            answer = await client.ask(create_topic(self._topic, len(self._queues)))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        self.up.set()

    async def send_while(self, has_room: Callable[[int], bool]) -> None:
        """Send batch after batch while `has_room(acknowledged)` is true, until `stopping` is set."""
        while not self.stopping:
            await self.up.wait()
            try:
                async with raw_client(self.broker.port) as client:
                    while not self.stopping:
                        if has_room(self.ledger.acknowledged_count):
                            await self._send(client)
                        else:
                            # Without a limit of its own: the tests have time limits.
                            await until(
                                lambda: self.stopping or has_room(self.ledger.acknowledged_count), math.inf
                            )
            except (EOFError, OSError):
                # The broker was killed, or answered late (TimeoutError): the outcome of that send is unknown.
                continue

    async def send(self, count: int) -> None:
        """Send `count` messages to a broker that is not killed."""
        async with raw_client(self.broker.port) as client:
            while self.ledger.acknowledged_count < count:
                await self._send(client)

    async def ends(self) -> dict[int, int]:
        """Return the end of each queue."""
        async with raw_client(self.broker.port) as client:
            return {queue[1]: await end_of(client, queue) for queue in self._queues}

    async def stored(self) -> tuple[list[MessageExt], Verdict]:
        """Return all messages of the broker. Raises AssertionError if acknowledged ones are missing."""
        queues = await read_queues(self.broker.port, self._queues)
        verdict = self.ledger.check(queues)
        return [message for messages in queues.values() for message in messages], verdict

    async def _send(self, client: RawClient) -> None:
        queue = self._rng.choice(self._queues)
        bodies = [
            b"%s-%d-" % (self.broker.broker_name.encode(), number)
            + b"x" * self._rng.randrange(_MOST_PADDING_BYTES)
            for number in itertools.islice(self._numbers, _BATCH_MESSAGES)
        ]
        self.ledger.sending(bodies)
        batch = [Message(self._topic, body) for body in bodies]
        answer = await client.ask(send_batch(self._topic, batch, queue_id=queue[1]))
        if answer.code == ResponseCode.SUCCESS:
            header = SendMessageResponseHeader.decode(answer.ext_fields)
            self.ledger.acknowledged(queue, header.queue_offset, header.msg_id.split(","), bodies)
        else:
            self.ledger.unknown(bodies)
