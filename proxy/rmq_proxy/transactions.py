"""Checks of transactions: brokers ask the proxy for the outcome, and the proxy asks a producer of the topic.

Brokers ask the producers of a group that they know by heartbeats. The proxy announces itself as a producer of
one group for each topic of transactions. The group has the topic's name. Source: Apache RocketMQ 5.3.3,
ClusterTransactionService, ProxyClientRemotingProcessor and GrpcClientChannel.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from typing import Any, Final

from rmq_client.errors import ClientError
from rmq_remoting.bodies.heartbeat import HeartbeatData, ProducerData
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.headers.transaction import CheckTransactionStateRequestHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_errors import MessageDecodeError
from rmq_remoting.message_properties import PROPERTY_PRODUCER_GROUP
from rmq_remoting.tasks import cancel_all
from rmq_remoting.tiers import InlineTier

from .brokers import Brokers
from .clients import ClientRegistry
from .messages import message_of, unpack_bodies
from .metadata import Metadata, TopicType
from .protocol import service_pb2 as rpc
from .transaction_id import TransactionId

log = logging.getLogger("rmq.proxy")

_WITH_TRANSACTIONS: Final = frozenset({TopicType.TRANSACTION, TopicType.MIXED})
_CAPACITY: Final = 10_000
_MAX_WAIT_MS: Final = 60_000
_MAX_CHECKS_IN_FLIGHT: Final = 2000
# Groups in one heartbeat (transactionHeartbeatBatchNum).
_GROUPS_PER_HEARTBEAT: Final = 100


class TransactionProducers:
    """The producers of transactions among the clients. Belongs to one loop."""

    def __init__(self, brokers: Brokers, metadata: Metadata, clients: ClientRegistry, client_id: str) -> None:
        """`client_id`: the id by which brokers know this proxy."""
        self._brokers = brokers
        self._metadata = metadata
        self._clients = clients
        self._client_id = client_id
        self._tasks: set[asyncio.Task[None]] = set()
        self._announcing: asyncio.Task[None] | None = None
        self._is_outdated = False

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the processor of checks."""
        tier = InlineTier("transaction checks", capacity=_CAPACITY, max_wait_ms=_MAX_WAIT_MS)
        dispatcher.register([RequestCode.CHECK_TRANSACTION_STATE], self.handle_check, tier)

    def announce_soon(self) -> None:
        """Send the heartbeats now, because there is another producer; those in flight are repeated."""
        self._is_outdated = True
        if self._announcing is None or self._announcing.done():
            self._announcing = self._start(self._announce_until_current())

    async def announce(self) -> None:
        """Send heartbeats with all topics of transactions to their brokers."""
        by_broker: dict[str, set[str]] = {}
        for topic in self._clients.published_topics():
            if await self._metadata.topic_type(topic) not in _WITH_TRANSACTIONS:
                continue
            for address in await self._addresses(topic):
                by_broker.setdefault(address, set()).add(topic)
        for address, topics in by_broker.items():
            names = sorted(topics)
            for start in range(0, len(names), _GROUPS_PER_HEARTBEAT):
                await self._heartbeat(address, names[start : start + _GROUPS_PER_HEARTBEAT])

    def handle_check(self, connection: Connection, request: RemotingCommand) -> None:
        """39: ask a producer. It answers with EndTransaction."""
        header = CheckTransactionStateRequestHeader.decode(request.ext_fields)
        try:
            messages = decode_messages(request.body, decompress_bodies=False)
        except MessageDecodeError as error:
            log.warning("transaction check dropped broker=%s cause=%s", connection.peer, error)
            return
        if not messages:
            return
        if len(self._tasks) >= _MAX_CHECKS_IN_FLIGHT:
            log.warning("transaction check dropped, too many in progress limit=%d", _MAX_CHECKS_IN_FLIGHT)
            return
        self._start(self._ask(header, messages[0], connection.peer))

    async def stop(self) -> None:
        """Cancel the checks and heartbeats in flight. Brokers repeat their checks."""
        await cancel_all(self._tasks)

    async def _announce_until_current(self) -> None:
        while self._is_outdated:
            self._is_outdated = False
            await self.announce()

    async def _ask(self, header: CheckTransactionStateRequestHeader, half: MessageExt, peer: str) -> None:
        topic = half.properties.get(PROPERTY_PRODUCER_GROUP, "")
        producers = self._clients.producers_of(topic)
        broker_name = header.broker_name or (self._brokers.own.name if self._brokers.own else "")
        if not producers or not broker_name:
            log.info(
                "transaction check dropped, no producer connected topic=%s broker=%s; the broker repeats it",
                topic,
                broker_name or peer,
            )
            return
        await unpack_bodies([half])
        transaction = TransactionId(
            half.msg_id, header.commit_log_offset, header.tran_state_table_offset, broker_name
        )
        command = rpc.TelemetryCommand()
        command.recover_orphaned_transaction_command.message.CopyFrom(message_of(half))
        command.recover_orphaned_transaction_command.transaction_id = str(transaction)
        random.shuffle(producers)
        for producer in producers:
            stream = producer.stream
            if stream is not None and await stream.write(command):
                return

    async def _addresses(self, topic: str) -> list[str]:
        if self._brokers.own is not None:
            return [self._brokers.own.address]
        try:
            route = await self._brokers.route(topic)
        except ClientError as error:
            log.info("producers of a topic not announced topic=%s cause=%s", topic, error)
            return []
        return [address for name in route.brokers if (address := route.master(name)) is not None]

    async def _heartbeat(self, address: str, groups: list[str]) -> None:
        data = HeartbeatData(
            client_id=self._client_id,
            producer_data_set=[ProducerData(group_name=group) for group in groups],
        )
        try:
            await self._brokers.call(
                address, RequestCode.HEART_BEAT, {}, data.encode(), about=f"heartbeat to {address}"
            )
        except ClientError as error:
            log.warning("producers not announced broker=%s cause=%s; the next heartbeat does", address, error)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
