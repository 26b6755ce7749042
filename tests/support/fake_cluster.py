"""A name server and brokers in memory with faults to order, for tests of the SDK and of its users.

A fault refuses, delays or drops the answer to a request, or cuts its connection. The servers implement only
what clients need. Tests without such faults use real servers (`clusters`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Self

from rmq_remoting.answers import Answer
from rmq_remoting.bodies.group import GetConsumerListByGroupResponseBody
from rmq_remoting.bodies.heartbeat import HeartbeatData
from rmq_remoting.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rmq_remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicList, TopicRouteData
from rmq_remoting.bodies.static_topic import TopicQueueMappingInfo
from rmq_remoting.bodies.topic import TopicConfig, TopicOffset, TopicStatsTable
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
)
from rmq_remoting.headers.consumer import ConsumerSendMsgBackRequestHeader
from rmq_remoting.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq_remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rmq_remoting.headers.reply import ReplyMessageRequestHeader
from rmq_remoting.headers.send import SendMessageRequestHeader
from rmq_remoting.headers.send_decoding import SendHeaderDecoder
from rmq_remoting.headers.topic import CreateTopicRequestHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.message_batch import decode_batch
from rmq_remoting.message_codec import encode_stored_message
from rmq_remoting.message_properties import decode_properties
from rmq_remoting.message_queue import MessageQueue
from rmq_remoting.server import RemotingServer
from rmq_remoting.tiers import InlineTier

LOOPBACK: Final = "127.0.0.1"
BORN_MS: Final = 1_700_000_000_000


@dataclass(slots=True)
class Fault:
    """What happens to a request instead of an answer, or before it.

    `delay_seconds` comes first. Then the connection is cut, or the request stays unanswered (`silent`), or it
    is refused (`code`), or it gets the ordinary answer. `after`: the request is processed all the same.
    """

    delay_seconds: float = 0.0
    cut: bool = False
    silent: bool = False
    code: int | None = None
    remark: str = "as ordered by the test"
    after: bool = False


@dataclass(slots=True)
class Seen:
    """A received request."""

    code: int
    request: RemotingCommand
    peer: str


class _Server:
    """A listening server with processors by code, and faults before them."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.connections_opened = 0
        self._faults: dict[int, deque[Fault]] = defaultdict(deque)
        self._port = 0
        self._server: RemotingServer | None = None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._port}"

    def processors(self) -> dict[RequestCode, Callable[[Connection, RemotingCommand], Answer]]:
        raise NotImplementedError

    def order(self, code: RequestCode, *faults: Fault) -> None:
        """Apply these faults to the next requests with that code, one each."""
        self._faults[code].extend(faults)

    def codes(self) -> list[int]:
        return [seen.code for seen in self.seen]

    def requests(self, code: RequestCode) -> list[RemotingCommand]:
        return [seen.request for seen in self.seen if seen.code == code]

    @property
    def connections(self) -> set[Connection]:
        return set() if self._server is None else self._server.connections

    async def listen(self) -> None:
        """Start listening; after `close`, on the same port again."""
        dispatcher = Dispatcher()
        tier = InlineTier("fake", capacity=100_000, max_wait_ms=60_000)
        for code, processor in self.processors().items():
            dispatcher.register([code], self._faulty(processor), tier)
        self._server = RemotingServer(dispatcher, on_open=self._opened, on_close=self._closed)
        self._port = await self._server.start(LOOPBACK, self._port)

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop(grace_seconds=0.1)
            self._server = None

    def cut_all(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def _opened(self, connection: Connection) -> None:
        self.connections_opened += 1

    def _closed(self, connection: Connection) -> None:
        pass

    def _faulty(
        self, processor: Callable[[Connection, RemotingCommand], Answer | asyncio.Future[Answer]]
    ) -> Callable[[Connection, RemotingCommand], Answer | asyncio.Future[Answer]]:
        def process(connection: Connection, request: RemotingCommand) -> Answer | asyncio.Future[Answer]:
            self.seen.append(Seen(request.code, request, connection.peer))
            faults = self._faults[request.code]
            if not faults:
                return processor(connection, request)
            fault = faults.popleft()
            return asyncio.ensure_future(self._meet(fault, processor, connection, request))

        return process

    async def _meet(
        self,
        fault: Fault,
        processor: Callable[[Connection, RemotingCommand], Answer | asyncio.Future[Answer]],
        connection: Connection,
        request: RemotingCommand,
    ) -> Answer:
        if fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault.after:
            processor(connection, request)
        if fault.cut:
            connection.abort()
        if fault.cut or fault.silent:
            return None
        if fault.code is not None:
            return request.response(fault.code, fault.remark)
        answer = processor(connection, request)
        return await answer if isinstance(answer, asyncio.Future) else answer


class FakeNamesrv(_Server):
    """Knows the topics of its brokers."""

    def __init__(self, brokers: dict[str, FakeBroker]) -> None:
        super().__init__()
        self.brokers = brokers
        # Names of static topics.
        self.static: set[str] = set()

    def processors(self) -> dict[RequestCode, Callable[[Connection, RemotingCommand], Answer]]:
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.topics,
        }

    def route(self, connection: Connection, request: RemotingCommand) -> Answer:
        topic = request.ext_fields["topic"]
        having = [broker for broker in self.brokers.values() if topic in broker.topics and broker.listed]
        if not having:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"no route of {topic}")
        data = TopicRouteData(
            broker_datas=[self._data(broker) for broker in having],
            queue_datas=[
                QueueData(
                    broker_name=broker.name,
                    perm=broker.permissions.get(topic, 6),
                    read_queue_nums=broker.topics[topic],
                    write_queue_nums=broker.topics[topic],
                )
                for broker in having
            ],
        )
        if topic in self.static:
            data.topic_queue_mapping_by_broker = {
                broker.name: TopicQueueMappingInfo(topic=topic, broker_name=broker.name) for broker in having
            }
        return request.response(ResponseCode.SUCCESS, body=data.encode())

    def cluster(self, connection: Connection, request: RemotingCommand) -> Answer:
        info = ClusterInfo(
            broker_addr_table={broker.name: self._data(broker) for broker in self.brokers.values()},
            cluster_addr_table={"DefaultCluster": list(self.brokers)},
        )
        return request.response(ResponseCode.SUCCESS, body=info.encode())

    def topics(self, connection: Connection, request: RemotingCommand) -> Answer:
        names = {topic for broker in self.brokers.values() for topic in broker.topics}
        return request.response(ResponseCode.SUCCESS, body=TopicList(topic_list=sorted(names)).encode())

    @staticmethod
    def _data(broker: FakeBroker) -> BrokerData:
        address = broker.announced or broker.address
        return BrokerData(broker_name=broker.name, broker_addrs={0: address}, cluster="DefaultCluster")


@dataclass(slots=True)
class FakeClient:
    """A client as its heartbeats describe it."""

    client_id: str
    connection: Connection
    heartbeat: HeartbeatData


@dataclass(slots=True)
class _Held:
    """A held pull."""

    request: RemotingCommand
    header: PullMessageRequestHeader
    future: asyncio.Future[Answer]


@dataclass(slots=True)
class FakeQueue:
    """Messages of one queue; `base` is the offset of the first."""

    records: list[MessageExt] = field(default_factory=list)
    base: int = 0

    @property
    def end(self) -> int:
        return self.base + len(self.records)


class FakeBroker(_Server):
    """Keeps messages in lists."""

    def __init__(self, name: str, topics: dict[str, int]) -> None:
        super().__init__()
        self.name = name
        self.topics = topics
        self.permissions: dict[str, int] = {}
        self.listed = True
        # Address that clients get; None: the real one.
        self.announced: str | None = None
        self.auto_create = False
        self.queues: dict[tuple[str, int], FakeQueue] = defaultdict(FakeQueue)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.clients: dict[str, FakeClient] = {}
        self.sends: list[SendMessageRequestHeader] = []
        self.bodies: list[bytes] = []
        self.replies: list[SendMessageRequestHeader] = []
        # Locks of ordered consumers: owner of each queue, by group. They do not expire.
        self.locks: dict[tuple[str, MessageQueue], str] = {}
        # Messages sent back: by default they are redelivered at once, on the group's retry topic.
        self.sent_back: list[ConsumerSendMsgBackRequestHeader] = []
        self.dead_letters: list[MessageExt] = []
        self._decoder = SendHeaderDecoder()
        self._positions = count(0, 100)
        self._held: dict[tuple[str, int], list[_Held]] = defaultdict(list)

    def processors(self) -> dict[RequestCode, Callable[[Connection, RemotingCommand], Answer]]:
        return {
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.create_topic,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
            RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
            RequestCode.CHECK_CLIENT_CONFIG: lambda _, request: request.response(ResponseCode.SUCCESS),
            # It allows no recalls, but can be silent about it.
            RequestCode.RECALL_MESSAGE: lambda _, request: request.response(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no recalls here"
            ),
        }

    # --- messages ---

    def put(self, topic: str, body: bytes, queue_id: int = 0, tags: str | None = None) -> MessageExt:
        """Store a message as if a producer had sent it."""
        properties = {"TAGS": tags} if tags else {}
        return self._store(topic, queue_id, body, 0, 0, properties)

    def send(self, connection: Connection, request: RemotingCommand) -> Answer:
        header = self._decoder.decode(request)
        target = header.target
        if target.topic not in self.topics:
            if not self.auto_create:
                return request.response(ResponseCode.TOPIC_NOT_EXIST, f"no topic {target.topic} here")
            self.topics[target.topic] = target.default_topic_queue_nums
        self.sends.append(header)
        properties = decode_properties(header.properties)
        if target.batch:
            stored = [
                self._store(
                    target.topic,
                    target.queue_id,
                    item.body,
                    0,
                    item.flag,
                    {**decode_properties(item.raw_properties), **properties},
                )
                for item in decode_batch(request.body)
            ]
        elif (
            target.topic.startswith("%RETRY%") and (target.max_reconsume_times or 0) < target.reconsume_times
        ):
            group = target.topic.removeprefix("%RETRY%")
            topic = f"%DLQ%{group}"
            stored = [self._store(topic, 0, request.body, target.sys_flag, target.flag, properties)]
            self.dead_letters += stored
        else:
            stored = [
                self._store(
                    target.topic,
                    target.queue_id,
                    request.body,
                    target.sys_flag,
                    target.flag,
                    properties,
                    target.reconsume_times,
                )
            ]
        fields = {
            "msgId": ",".join(message.offset_msg_id for message in stored),
            "queueId": str(target.queue_id),
            "queueOffset": str(stored[0].queue_offset),
        }
        return request.response(ResponseCode.SUCCESS, ext_fields=fields)

    def reply(self, connection: Connection, request: RemotingCommand) -> Answer | asyncio.Future[Answer]:
        header = self._decoder.decode(request)
        self.replies.append(header)
        client = self.clients.get(decode_properties(header.properties).get("REPLY_TO_CLIENT", ""))
        if client is None:
            return request.response(ResponseCode.SYSTEM_ERROR, "the requester is not connected here")
        return asyncio.ensure_future(self._push_reply(client, request, header))

    async def _push_reply(
        self, client: FakeClient, request: RemotingCommand, header: SendMessageRequestHeader
    ) -> Answer:
        fields = ReplyMessageRequestHeader(
            born_host=f"{LOOPBACK}:1",
            born_timestamp=header.born_timestamp_ms,
            default_topic="",
            default_topic_queue_nums=4,
            flag=header.target.flag,
            producer_group=header.target.producer_group,
            properties=header.properties.decode(),
            queue_id=header.target.queue_id,
            store_host=self.address,
            sys_flag=header.target.sys_flag,
            topic=header.target.topic,
        ).encode()
        push = RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, request.body)
        answer = await client.connection.send_request(push, 5.0)
        place = {"msgId": "0", "queueId": "0", "queueOffset": "0"}
        return request.response(answer.code, answer.remark, place)

    def _store(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        sys_flag: int,
        flag: int,
        properties: dict[str, str],
        reconsume_times: int = 0,
    ) -> MessageExt:
        queue = self.queues[topic, queue_id]
        message = MessageExt(
            topic,
            body,
            flag,
            properties,
            queue_id,
            queue.end,
            next(self._positions),
            sys_flag,
            BORN_MS,
            (LOOPBACK, 1),
            BORN_MS,
            (LOOPBACK, self._port),
            reconsume_times,
        )
        queue.records.append(message)
        self.bodies.append(body)
        for held in self._held.pop((topic, queue_id), []):
            if not held.future.done():
                held.future.set_result(self._found(held.request, held.header))
        return message

    def pull(self, connection: Connection, request: RemotingCommand) -> Answer | asyncio.Future[Answer]:
        header = PullMessageRequestHeader.decode(request.ext_fields)
        key = (header.topic, header.queue_id)
        queue = self.queues[key]
        if header.sys_flag & 1:
            self.offsets[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        if header.queue_offset < queue.base or header.queue_offset > queue.end:
            goal = queue.base if header.queue_offset < queue.base else queue.end
            return self._pulled(request, ResponseCode.PULL_OFFSET_MOVED, goal, queue, b"")
        if header.queue_offset < queue.end:
            return self._found(request, header)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._held[key].append(_Held(request, header, future))
        loop.call_later(header.suspend_timeout_ms / 1000, self._give_up, request, queue, header, future)
        return future

    def _give_up(
        self,
        request: RemotingCommand,
        queue: FakeQueue,
        header: PullMessageRequestHeader,
        future: asyncio.Future[Answer],
    ) -> None:
        if not future.done():
            code = ResponseCode.PULL_NOT_FOUND
            future.set_result(self._pulled(request, code, header.queue_offset, queue, b""))

    def _found(self, request: RemotingCommand, header: PullMessageRequestHeader) -> Answer:
        queue = self.queues[header.topic, header.queue_id]
        start = header.queue_offset - queue.base
        messages = queue.records[start : start + header.max_msg_nums]
        body = b"".join(encode_stored_message(message) for message in messages)
        after = header.queue_offset + len(messages)
        return self._pulled(request, ResponseCode.SUCCESS, after, queue, body)

    @staticmethod
    def _pulled(
        request: RemotingCommand, code: int, next_offset: int, queue: FakeQueue, body: bytes
    ) -> Answer:
        header = PullMessageResponseHeader(0, next_offset, queue.base, queue.end)
        return request.response(code, ext_fields=header.encode(), body=body)

    # --- clients ---

    def heartbeat(self, connection: Connection, request: RemotingCommand) -> Answer:
        data = HeartbeatData.decode(request.body)
        before = self._groups(data.client_id)
        self.clients[data.client_id] = FakeClient(data.client_id, connection, data)
        self._tell(before ^ self._groups(data.client_id))
        return request.response(ResponseCode.SUCCESS)

    def unregister(self, connection: Connection, request: RemotingCommand) -> Answer:
        header = UnregisterClientRequestHeader.decode(request.ext_fields)
        client = self.clients.get(header.client_id)
        if client is not None and header.consumer_group is not None:
            client.heartbeat.consumer_data_set = [
                data
                for data in client.heartbeat.consumer_data_set
                if data.group_name != header.consumer_group
            ]
            self._tell({header.consumer_group})
        return request.response(ResponseCode.SUCCESS)

    def consumer_list(self, connection: Connection, request: RemotingCommand) -> Answer:
        group = GetConsumerListByGroupRequestHeader.decode(request.ext_fields).consumer_group
        ids = [client_id for client_id in self.clients if group in self._groups(client_id)]
        body = GetConsumerListByGroupResponseBody(consumer_id_list=ids)
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def members(self, group: str) -> list[str]:
        return [client_id for client_id in self.clients if group in self._groups(client_id)]

    def _groups(self, client_id: str) -> set[str]:
        client = self.clients.get(client_id)
        if client is None or client.connection.is_closed:
            return set()
        return {data.group_name for data in client.heartbeat.consumer_data_set}

    def _closed(self, connection: Connection) -> None:
        gone = {client.client_id for client in self.clients.values() if client.connection is connection}
        groups = {
            data.group_name
            for client_id in gone
            for data in self.clients[client_id].heartbeat.consumer_data_set
        }
        for client_id in gone:
            del self.clients[client_id]
        self._tell(groups)

    def _tell(self, groups: set[str]) -> None:
        for group in groups:
            for client_id in self.members(group):
                header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
                request = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header.encode())
                self.clients[client_id].connection.send_oneway(request)

    # --- retries and locks ---

    def send_back(self, connection: Connection, request: RemotingCommand) -> Answer:
        header = ConsumerSendMsgBackRequestHeader.decode(request.ext_fields)
        self.sent_back.append(header)
        message = next(
            message
            for queue in list(self.queues.values())
            for message in queue.records
            if message.physical_offset == header.offset
        )
        limit = 16 if header.max_reconsume_times is None else header.max_reconsume_times
        if header.delay_level < 0 or message.reconsume_times >= limit:
            self.dead_letters.append(message)
        else:
            topic = f"%RETRY%{header.group}"
            self.topics.setdefault(topic, 1)
            properties = {**message.properties, "RETRY_TOPIC": header.origin_topic or message.topic}
            times = message.reconsume_times + 1
            self._store(topic, 0, message.body, message.sys_flag, message.flag, properties, times)
        return request.response(ResponseCode.SUCCESS)

    def lock(self, connection: Connection, request: RemotingCommand) -> Answer:
        body = LockBatchRequestBody.decode(request.body)
        locked = [
            queue
            for queue in body.mq_set
            if self.locks.setdefault((body.consumer_group, queue), body.client_id) == body.client_id
        ]
        answer = LockBatchResponseBody(lock_ok_mq_set=locked)
        return request.response(ResponseCode.SUCCESS, body=answer.encode())

    def unlock(self, connection: Connection, request: RemotingCommand) -> Answer:
        body = UnlockBatchRequestBody.decode(request.body)
        for queue in body.mq_set:
            if self.locks.get((body.consumer_group, queue)) == body.client_id:
                del self.locks[body.consumer_group, queue]
        return request.response(ResponseCode.SUCCESS)

    # --- offsets and topics ---

    def query_offset(self, connection: Connection, request: RemotingCommand) -> Answer:
        header = QueryConsumerOffsetRequestHeader.decode(request.ext_fields)
        offset = self.offsets.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            return request.response(ResponseCode.QUERY_NOT_FOUND, "no offset")
        return request.response(ResponseCode.SUCCESS, ext_fields={"offset": str(offset)})

    def update_offset(self, connection: Connection, request: RemotingCommand) -> Answer:
        header = UpdateConsumerOffsetRequestHeader.decode(request.ext_fields)
        self.offsets[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        return request.response(ResponseCode.SUCCESS)

    def max_offset(self, connection: Connection, request: RemotingCommand) -> Answer:
        return self._offset(request, self._queue(request).end)

    def min_offset(self, connection: Connection, request: RemotingCommand) -> Answer:
        return self._offset(request, self._queue(request).base)

    def topic_stats(self, connection: Connection, request: RemotingCommand) -> Answer:
        topic = request.ext_fields["topic"]
        if topic not in self.topics:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"no topic {topic}")
        table = TopicStatsTable()
        for queue_id in range(self.topics[topic]):
            queue = self.queues[topic, queue_id]
            last_ms = queue.records[-1].store_timestamp if queue.records else 0
            table.offset_table[MessageQueue(topic, self.name, queue_id)] = TopicOffset(
                last_update_timestamp=last_ms, max_offset=queue.end, min_offset=queue.base
            )
        return request.response(ResponseCode.SUCCESS, body=table.encode())

    def earliest_time(self, connection: Connection, request: RemotingCommand) -> Answer:
        queue = self._queue(request)
        first_ms = queue.records[0].store_timestamp if queue.records else -1
        return request.response(ResponseCode.SUCCESS, ext_fields={"timestamp": str(first_ms)})

    def search_offset(self, connection: Connection, request: RemotingCommand) -> Answer:
        header = SearchOffsetRequestHeader.decode(request.ext_fields)
        queue = self.queues[header.topic, header.queue_id]
        return self._offset(request, queue.base if header.timestamp <= BORN_MS else queue.end)

    def create_topic(self, connection: Connection, request: RemotingCommand) -> Answer:
        header = CreateTopicRequestHeader.decode(request.ext_fields)
        self.topics[header.topic] = header.write_queue_nums
        return request.response(ResponseCode.SUCCESS)

    def topic_config(self, connection: Connection, request: RemotingCommand) -> Answer:
        name = request.ext_fields["topic"]
        queues = self.topics.get(name)
        if queues is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"no topic {name}")
        config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        return request.response(ResponseCode.SUCCESS, body=config.encode())

    def _queue(self, request: RemotingCommand) -> FakeQueue:
        return self.queues[request.ext_fields["topic"], int(request.ext_fields["queueId"])]

    @staticmethod
    def _offset(request: RemotingCommand, offset: int) -> Answer:
        return request.response(ResponseCode.SUCCESS, ext_fields={"offset": str(offset)})


class FakeCluster:
    """`async with FakeCluster({"broker-a": {"T": 4}}) as cluster`: queue counts by broker name and topic."""

    def __init__(self, brokers: dict[str, dict[str, int]]) -> None:
        self.brokers = {name: FakeBroker(name, dict(topics)) for name, topics in brokers.items()}
        self.namesrv = FakeNamesrv(self.brokers)

    @property
    def address(self) -> str:
        return self.namesrv.address

    @property
    def broker(self) -> FakeBroker:
        """The first broker."""
        return next(iter(self.brokers.values()))

    async def __aenter__(self) -> Self:
        for server in (*self.brokers.values(), self.namesrv):
            await server.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in (self.namesrv, *self.brokers.values()):
            await server.close()
