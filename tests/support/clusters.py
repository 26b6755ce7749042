"""A name server and brokers of ours in this process, for tests of the SDK and of its users.

(As processes: `own_servers`. With faults to order: `fake_cluster`.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from rmq_broker.clients.queue_locks import QueueLocks
from rmq_broker.clock import now_ms
from rmq_broker.delivery.inner_message import InnerMessage
from rmq_broker.offsets.table import NO_OFFSET
from rmq_broker.settings.broker import BrokerSettings
from rmq_broker.topics.permissions import READ_WRITE
from rmq_client.loop_thread import LoopThread
from rmq_namesrv.namesrv import Namesrv
from rmq_remoting.answers import Result
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.daemon.configuration import Configuration
from rmq_remoting.dispatch import Dispatcher, Processor
from rmq_remoting.headers.consumer import ConsumerSendMsgBackRequestHeader
from rmq_remoting.headers.send import SendMessageRequestHeader
from rmq_remoting.headers.send_decoding import SendHeaderDecoder
from rmq_remoting.message import MessageExt
from rmq_remoting.message_properties import properties_to_string
from rmq_remoting.message_queue import MessageQueue
from tests.support.brokers import RunningBroker, broker_configuration
from tests.support.namesrv import running_namesrv

# Queues by topic, by name of a broker.
Brokers = Mapping[str, Mapping[str, int]]

_DEFAULTS: Final[Mapping[str, object]] = {
    "autoCreateTopicEnable": "false",
    # Every level is due at once, so that refused messages are redelivered without a wait.
    "messageDelayLevel": " ".join(["0s"] * 18),
}
_DELIVERY_SECONDS: Final = 0.005


class RecordedRequests:
    """The requests that a dispatcher has run, in their order, with the addresses of their clients."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._received: list[tuple[RemotingCommand, str]] = []
        for row in dispatcher.registrations():
            row.processor = self._recording(row.processor)

    def codes(self) -> list[int]:
        return [request.code for request, _ in self._received]

    def of(self, code: RequestCode) -> list[RemotingCommand]:
        return [request for request, _ in self._received if request.code == code]

    def peers(self, code: RequestCode) -> set[str]:
        """Return the clients that have sent requests with this code."""
        return {peer for request, peer in self._received if request.code == code}

    def _recording(self, processor: Processor) -> Processor:
        def process(connection: Connection, request: RemotingCommand) -> Result:
            self._received.append((request, connection.peer))
            return processor(connection, request)

        return process


class ClusterBroker(RunningBroker):
    """A broker of a `RunningCluster`, which records its requests."""

    def __init__(self, configuration: Configuration[BrokerSettings], topics: Mapping[str, int]) -> None:
        """`topics`: number of queues by the name of a topic."""
        super().__init__(configuration)
        self._topics = topics

    async def build(self) -> None:
        await super().build()
        self.recorded = RecordedRequests(self.broker.listeners.main.dispatcher)
        # Refused messages are due at once; the broker's own pause between deliveries is up to 100 ms.
        self.services.delivery.delayed.pause_seconds = lambda: _DELIVERY_SECONDS  # type: ignore[method-assign]
        for name, queues in self._topics.items():
            self._set_queues(name, queues)

    @property
    def name(self) -> str:
        return self.configuration.settings.broker_name

    @property
    def connections(self) -> set[Connection]:
        """The open connections of clients."""
        return self.broker.listeners.main.connections

    @property
    def connections_opened(self) -> int:
        """Number of connections that clients have opened so far."""
        return self.broker.listeners.main.statistics.opened

    def requests(self, code: RequestCode) -> list[RemotingCommand]:
        """Return the requests with a code so far."""
        return self.recorded.of(code)

    @property
    def locks(self) -> QueueLocks:
        """The locks of ordered consumers."""
        return self.services.clients.queue_locks

    @property
    def sends(self) -> list[SendMessageRequestHeader]:
        """The headers of all sends so far, of single messages before those of batches."""
        decoder = SendHeaderDecoder()
        codes = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
        return [decoder.decode(request) for code in codes for request in self.requests(code)]

    @property
    def sent_back(self) -> list[ConsumerSendMsgBackRequestHeader]:
        """The headers of the requests that sent messages back so far."""
        requests = self.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
        return [ConsumerSendMsgBackRequestHeader.decode(request.ext_fields) for request in requests]

    # --- topics and messages ---

    async def set_queues(self, topic: str, queues: int, perm: int = READ_WRITE) -> None:
        """Create a topic or change its queues and permissions, and wait until the name server knows."""
        self._set_queues(topic, queues, perm)
        assert await self.broker.registrar.announced()

    def put(self, topic: str, body: bytes, queue_id: int = 0, tags: str | None = None, **more: str) -> None:
        """Store a message as if a producer had sent it; `more` are further properties."""
        properties = {"TAGS": tags, **more} if tags else more
        host = self.broker.address.store_host
        message = InnerMessage(
            topic,
            queue_id,
            body,
            properties_to_string(properties).encode(),
            flag=0,
            sys_flag=0,
            reconsume_times=0,
            born_timestamp_ms=now_ms(),
            born_host=host,
            store_host=host,
        )
        self.services.delivery.writer.put(message)

    def messages(self, topic: str = "T") -> list[MessageExt]:
        """Return the messages of all queues of a topic, in the order in which they were stored."""
        config = self.topics.get(topic)
        queues = 0 if config is None else config.write_queue_nums
        stored = [message for queue_id in range(queues) for message in self.stored(topic, queue_id)]
        return sorted(stored, key=lambda message: message.physical_offset)

    # --- groups ---

    def committed(self, group: str = "g", topic: str = "T", queue_id: int = 0) -> int | None:
        """Return the committed offset of a group; None without one."""
        offset = self.offsets.query(group, topic, queue_id)
        return None if offset == NO_OFFSET else offset

    def members(self, group: str = "g") -> list[str]:
        """Return the client ids of a group's members."""
        found = self.consumers.find_group(group)
        return [] if found is None else found.client_ids()

    async def ask_member(self, request: RemotingCommand, group: str = "g") -> RemotingCommand:
        """Send a request to the only member of a group; return its response."""
        (client_id,) = self.members(group)
        return await self.connection_of(client_id, group).send_request(request, 5.0)

    def connection_of(self, client_id: str, group: str = "g") -> Connection:
        """Return the connection of a member."""
        found = self.consumers.find_group(group)
        client = None if found is None else found.find_client(client_id)
        assert client is not None
        return client.connection

    def expire_lock(self, queue: MessageQueue, group: str = "g") -> None:
        """Remove the lock of a queue as if it had expired."""
        holder = self.locks.holder(group, queue)
        if holder is not None:
            self.locks.unlock(group, [queue], holder)

    def _set_queues(self, topic: str, queues: int, perm: int = READ_WRITE) -> None:
        self.topics.update(
            TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        )


class RunningCluster:
    """A running name server and the brokers that are registered with it."""

    def __init__(self, namesrv: Namesrv) -> None:
        self.namesrv = namesrv
        # The requests to the name server.
        self.recorded = RecordedRequests(namesrv.dispatcher)
        self.brokers: dict[str, ClusterBroker] = {}

    @property
    def address(self) -> str:
        """The address of the name server."""
        return self.namesrv.address

    @property
    def broker(self) -> ClusterBroker:
        """The first broker."""
        return next(iter(self.brokers.values()))

    async def add(self, folder: Path, name: str, topics: Mapping[str, int], **keys: object) -> ClusterBroker:
        """Start a broker with these topics; `keys` are settings by Apache's keys."""
        chosen = {**_DEFAULTS, "brokerName": name, "namesrvAddr": self.address, **keys}
        broker = self.brokers[name] = ClusterBroker(broker_configuration(folder / name, **chosen), topics)
        await broker.start()
        return broker

    async def stop(self) -> None:
        """Stop the brokers."""
        await asyncio.gather(*(broker.stop() for broker in self.brokers.values()))


@asynccontextmanager
async def running_cluster(
    folder: Path, brokers: Brokers | None = None, **keys: object
) -> AsyncIterator[RunningCluster]:
    """A cluster with its files in `folder`; without more: `broker-a` with the topic T of one queue.

    Topics are not created automatically, and delay levels do not delay. `keys` are settings of all brokers.
    """
    async with AsyncExitStack() as stack:
        cluster = RunningCluster(await stack.enter_async_context(running_namesrv(folder)))
        stack.push_async_callback(cluster.stop)
        for name, topics in (brokers or {"broker-a": {"T": 1}}).items():
            await cluster.add(folder, name, topics, **keys)
        yield cluster


@contextmanager
def cluster_in_a_thread(
    folder: Path, brokers: Brokers | None = None, **keys: object
) -> Iterator[RunningCluster]:
    """A cluster with a thread of its own, for tests that run no loop or block theirs.

    Only reading its parts is allowed in other threads.
    """
    thread = LoopThread("cluster")
    try:
        context = running_cluster(folder, brokers, **keys)
        cluster = thread.submit(context.__aenter__()).result()
        try:
            yield cluster
        finally:
            thread.submit(context.__aexit__(None, None, None)).result()
    finally:
        thread.signal_stop()
        thread.join()
