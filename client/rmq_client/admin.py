"""Administration for programs: topics, messages, and the progress of consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from rmq_remoting.bodies.offsets import (
    ConsumeStats,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from rmq_remoting.bodies.route import MASTER_BROKER_ID, ClusterInfo
from rmq_remoting.bodies.topic import PERM_READ_WRITE, TopicConfig, TopicOffset
from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.consumer import GetConsumeStatsRequestHeader, QueryConsumeTimeSpanRequestHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from .errors import ClientError, NotRunning, RouteError, TopicNotFound, UsageError
from .lifetime import Lifetime
from .message_queries import DEFAULT_MAX_MESSAGES, MessageQueries, MessageQuery, QueryResult, time_range_ms
from .names import check_topic
from .namespaces import Namespace
from .network.broker_api import BrokerApi
from .network.instance import ClientInstance
from .network.routing import TopicRoute
from .settings import ClientSettings
from .tasks import uninterrupted

_DEFAULT_SETTINGS: Final = ClientSettings()
_ROUTE_POLL_SECONDS: Final = 0.1


class Admin(Lifetime):
    """Administration of a cluster.

    ::

        async with Admin("127.0.0.1:9876") as admin:
            await admin.create_topic("orders", queues=8)
    """

    def __init__(
        self, namesrv: str | Sequence[str] | None = None, *, settings: ClientSettings = _DEFAULT_SETTINGS
    ) -> None:
        """Connect to the cluster of these name servers.

        With `settings.namespace`, topics and groups are named without the namespace.
        """
        self._namesrv = namesrv
        self._settings = settings
        self._namespace = Namespace(settings.namespace)
        self._instance: ClientInstance | None = None
        self._api: BrokerApi
        self._queries: MessageQueries

    async def start(self) -> None:
        """Connect. Raises UsageError."""
        if self._instance is not None:
            raise UsageError("this Admin has been started already")
        self._instance = await ClientInstance.acquire(self._namesrv, self._settings)
        self._api = BrokerApi(self._instance.bridge(), self._settings)
        self._queries = MessageQueries(self._api, self._settings.max_unpacked_body_bytes)

    async def stop(self) -> None:
        """Release the connections."""
        instance, self._instance = self._instance, None
        if instance is not None:
            await uninterrupted(instance.release())

    # --- topics ---

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        permission: int = PERM_READ_WRITE,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker_name: str | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Create or change a topic on all masters, and wait until the name servers know it there.

        `cluster` or `broker_name` restrict the masters. `queues` is per broker. `permission` is 2 to write, 4
        to read, 6 for both. `attributes` have the names of Apache's tools, with a + before the name. Raises
        ClientError.
        """
        topic = self._namespace.wrap(topic)
        check_topic(topic)
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=permission,
            attributes=dict(attributes or {}),
        )
        masters = await self._masters(cluster, broker_name)
        await asyncio.gather(*(self._api.create_topic(address, config) for address in masters.values()))
        await self._wait_for_route(topic, set(masters), timeout_seconds)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic and its messages on all brokers and name servers. Raises ClientError."""
        instance = self._running()
        topic = self._namespace.wrap(topic)
        info = await self.cluster_info()
        addresses = [
            address for broker in info.broker_addr_table.values() for address in broker.broker_addrs.values()
        ]
        await asyncio.gather(*(self._api.delete_topic(address, topic) for address in addresses))
        await instance.run(instance.name_servers.delete_topic(topic))

    async def topics(self) -> list[str]:
        """Return the names of all topics, or of those in the namespace if there is one.

        Raises ClientError.
        """
        instance, namespace = self._running(), self._namespace
        topics = await instance.run(instance.name_servers.topics())
        return sorted(namespace.unwrap(topic) for topic in topics if namespace.has(topic))

    async def topic_route(self, topic: str) -> TopicRoute:
        """Return the current route of a topic. Raises TopicNotFound and other ClientErrors."""
        instance = self._running()
        return await instance.run(instance.routes.refresh(self._namespace.wrap(topic)))

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the offsets of every queue of a topic. Raises ClientError."""
        topic = self._namespace.wrap(topic)
        addresses = await self._addresses_of(topic)
        tables = await asyncio.gather(*(self._api.topic_stats(address, topic) for address in addresses))
        unwrap = self._namespace.unwrap_queue
        return {unwrap(queue): reach for table in tables for queue, reach in table.offset_table.items()}

    # --- messages ---

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        unique: bool = False,
        begin: datetime | None = None,
        end: datetime | None = None,
        max_messages: int = DEFAULT_MAX_MESSAGES,
    ) -> QueryResult:
        """Return messages of a topic that have a key, stored between two times, the oldest first.

        `key` is one of a message's keys, or with `unique` the id that its producer gave it (`msg_id`; the
        messages of one batch share it). Of more than `max_messages` messages the newest are returned. A
        broker returns at most 64 (`maxMsgsNumBatch`), and at most 32 by unique key. Brokers index messages a
        moment after they have stored them.

        Raises ClientError if no broker of the topic answers. If only some answer, the result names the
        others.
        """
        if max_messages < 1:
            raise UsageError(f"max_messages={max_messages}: must be at least 1")
        if not key:
            raise UsageError("key is empty: name a key of the messages")
        begin_ms, end_ms = time_range_ms(begin, end)
        if begin_ms > end_ms:
            raise UsageError(f"begin {begin} is after end {end}: no message can be stored between them")
        topic = self._namespace.wrap(topic)
        query = MessageQuery(topic, key, unique, begin_ms, end_ms, max_messages)
        result = await self._queries.query(await self.topic_route(topic), query)
        self._namespace.unwrap_topics(result.messages)
        return result

    async def view_message(self, topic: str, message_id: str) -> MessageExt | None:
        """Return the message with an id of the broker (`offset_msg_id`) or of the producer (`msg_id`).

        Returns None if no broker of the topic has the message (any more, or yet). The messages of a batch
        share their `msg_id`: the first is returned. Raises ClientError if a broker that may have it does not
        answer.
        """
        message = await self._queries.view(await self.topic_route(topic), message_id)
        if message is not None:
            self._namespace.unwrap_topics([message])
        return message

    # --- consumption ---

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Return the progress of a group in every queue of a topic, or of all topics that it has consumed.

        The result also has the messages per second that the group got in the last minute. A group that never
        consumed has no queues. Raises ClientError.
        """
        group = self._namespace.checked_group(group)
        if topic is None:
            addresses = list((await self._masters(None, None)).values())
        else:
            topic = self._namespace.wrap(topic)
            addresses = await self._addresses_of(topic)
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        each = await asyncio.gather(
            *(
                self._api.ask(
                    address,
                    RequestCode.GET_CONSUME_STATS,
                    header,
                    f"progress of group {group}",
                    lambda answer: ConsumeStats.decode(answer.body),
                )
                for address in addresses
            )
        )
        return ConsumeStats(
            offset_table={
                self._namespace.unwrap_queue(queue): reach
                for stats in each
                for queue, reach in stats.offset_table.items()
            },
            consume_tps=sum(stats.consume_tps for stats in each),
        )

    async def consume_time_span(self, group: str, topic: str) -> list[QueueTimeSpan]:
        """Return the times of the first, the last and the last consumed message of each queue.

        Times are in ms since 1970, -1 if there is no message. Raises ClientError.
        """
        group, topic = self._namespace.checked_group(group), self._namespace.wrap(topic)
        header = QueryConsumeTimeSpanRequestHeader(group=group, topic=topic)
        each = await asyncio.gather(
            *(
                self._api.ask(
                    address,
                    RequestCode.QUERY_CONSUME_TIME_SPAN,
                    header,
                    f"consumption times of group {group} in topic {topic}",
                    lambda answer: QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set,
                )
                for address in await self._addresses_of(topic)
            )
        )
        found = [span for spans in each for span in spans]
        for span in found:
            if span.message_queue is not None:
                span.message_queue = self._namespace.unwrap_queue(span.message_queue)
        return found

    # --- clusters ---

    async def cluster_info(self) -> ClusterInfo:
        """Return all brokers. Raises ClientError."""
        instance = self._running()
        return await instance.run(instance.name_servers.cluster_info())

    # --- offsets ---

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of the queue will get. Raises ClientError."""
        queue = self._namespace.wrap_queue(queue)
        return await self._api.max_offset(await self._address_of(queue), queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message in the queue. Raises ClientError."""
        queue = self._namespace.wrap_queue(queue)
        return await self._api.min_offset(await self._address_of(queue), queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at `timestamp_ms` (since 1970 UTC) or later.

        Without such a message it is the offset that the next message will get. Raises ClientError.
        """
        queue = self._namespace.wrap_queue(queue)
        return await self._api.search_offset(await self._address_of(queue), queue, timestamp_ms)

    async def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return the committed offset of a group in a queue, None if it has committed none.

        Raises ClientError.
        """
        group, queue = self._namespace.wrap(group), self._namespace.wrap_queue(queue)
        return await self._api.committed_offset(await self._address_of(queue), group, queue)

    async def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the committed offset of a group in a queue.

        Its consumers must not be running. Raises ClientError.
        """
        group, queue = self._namespace.wrap(group), self._namespace.wrap_queue(queue)
        await self._api.commit_offset(await self._address_of(queue), group, queue, offset)

    async def consumer_ids(self, group: str, topic: str) -> list[str]:
        """Return the client ids of a group's live consumers, as one broker of the topic knows them.

        Raises ClientError.
        """
        route = await self.topic_route(topic)
        for name in route.brokers:
            address = route.broker_address(name)
            if address is not None:
                return await self._api.consumer_ids(address, self._namespace.wrap(group))
        raise RouteError(f"topic {topic} has no broker with an address: no broker can be asked")

    async def _masters(self, cluster: str | None, broker_name: str | None) -> dict[str, str]:
        info = await self.cluster_info()
        masters = {
            name: broker.broker_addrs[MASTER_BROKER_ID]
            for name, broker in info.broker_addr_table.items()
            if MASTER_BROKER_ID in broker.broker_addrs
            and (broker_name is None or name == broker_name)
            and (cluster is None or name in info.cluster_addr_table.get(cluster, ()))
        }
        if not masters:
            chosen = broker_name or cluster or "the cluster"
            known = ", ".join(sorted(info.broker_addr_table)) or "none"
            raise UsageError(f"{chosen} has no master; brokers known to the name servers: {known}")
        return masters

    async def _wait_for_route(self, topic: str, broker_names: set[str], timeout_seconds: float) -> None:
        """Wait for the registration of a new topic, which brokers send after they have answered."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while True:
            missing = broker_names
            try:
                route = await self.topic_route(topic)
                missing = broker_names - {
                    queue.broker_name for queue in (*route.write_queues, *route.read_queues)
                }
            except TopicNotFound:
                pass
            if not missing:
                return
            if loop.time() > deadline:
                raise ClientError(
                    f"topic {topic} was created on {', '.join(sorted(missing))}, but the name servers do "
                    f"not list it there after {timeout_seconds} s: check that those brokers can reach the "
                    "name servers"
                )
            await asyncio.sleep(_ROUTE_POLL_SECONDS)

    async def _addresses_of(self, topic: str) -> list[str]:
        """Return an address for each broker of a topic: the master's, if there is a master."""
        route = await self.topic_route(topic)
        return [address for name in route.brokers if (address := route.broker_address(name))]

    async def _address_of(self, queue: MessageQueue) -> str:
        instance = self._running()
        route = instance.routes.existing.get(queue.topic) or await self.topic_route(queue.topic)
        address = route.broker_address(queue.broker_name)
        if address is None:
            raise RouteError(f"broker {queue.broker_name} of {queue} is not in the route of its topic")
        return address

    def _running(self) -> ClientInstance:
        if self._instance is None:
            raise NotRunning("this Admin is not running: use `async with Admin(...)`")
        return self._instance
