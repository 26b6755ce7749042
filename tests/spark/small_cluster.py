"""This project's name server and brokers for programs without an event loop, such as tests with Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from rmq_client import Message, MessageQueue
from rmq_client.blocking import Admin, Producer
from tests.support.own_servers import OwnBroker, OwnNamesrv

_BATCH = 200


class ClusterClient:
    """Operations of tests on a cluster, on this project's servers or Apache's."""

    admin: Admin
    producer: Producer

    @property
    def address(self) -> str:
        """The address of the name server."""
        raise NotImplementedError

    def create_topic(self, topic: str, queues: int = 4, broker_name: str | None = None) -> None:
        self.admin.create_topic(topic, queues=queues, broker_name=broker_name)

    def send(
        self, topic: str, queue_id: int, bodies: Iterable[bytes], broker_name: str = "broker-a", **more: Any
    ) -> None:
        """Send messages to one queue, in order. `more`: arguments of each Message."""
        self.send_messages([Message(topic, body, **more) for body in bodies], queue_id, broker_name)

    def send_messages(
        self, messages: list[Message], queue_id: int = 0, broker_name: str = "broker-a"
    ) -> None:
        """Send messages of one topic to one queue, in order."""
        for first in range(0, len(messages), _BATCH):
            part = messages[first : first + _BATCH]
            self.producer.send_batch(part, queue=MessageQueue(part[0].topic, broker_name, queue_id))


class SmallCluster(ClusterClient):
    """`with SmallCluster() as cluster`: a cluster with `broker-a`; `add_broker` adds others."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.namesrv = OwnNamesrv()
        self._settings = dict(settings or {})
        self.brokers: dict[str, OwnBroker] = {}
        self._stack = ExitStack()

    @property
    def address(self) -> str:
        return self.namesrv.address

    @property
    def broker(self) -> OwnBroker:
        """The first broker."""
        return self.brokers["broker-a"]

    def __enter__(self) -> Self:
        with self._stack:
            self._stack.callback(self.namesrv.close)
            asyncio.run(_started(self.namesrv))
            self.add_broker("broker-a")
            self.admin = self._stack.enter_context(Admin(self.address))
            self.producer = self._stack.enter_context(Producer(self.address, group="spark-tests"))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add_broker(self, name: str) -> OwnBroker:
        """Start another broker."""
        broker = self.brokers[name] = OwnBroker(self.address, broker_name=name, settings=self._settings)
        self._stack.callback(broker.close)
        asyncio.run(_started(broker))
        return broker

    def restart(self, broker: OwnBroker) -> None:
        """Restart a broker that was killed."""
        asyncio.run(_started(broker))


async def _started(server: OwnNamesrv | OwnBroker) -> None:
    await server.start()
