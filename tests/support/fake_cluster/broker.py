"""A broker in memory."""

from __future__ import annotations

import asyncio

from rmq_remoting.answers import Answer
from rmq_remoting.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rmq_remoting.bodies.topic import TopicConfig, TopicOffset, TopicStatsTable
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.headers.consumer import ConsumerSendMsgBackRequestHeader
from rmq_remoting.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq_remoting.headers.reply import ReplyMessageRequestHeader
from rmq_remoting.headers.send import SendMessageRequestHeader
from rmq_remoting.headers.send_decoding import SendHeaderDecoder
from rmq_remoting.headers.topic import CreateTopicRequestHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.message_batch import decode_batch
from rmq_remoting.message_properties import decode_properties
from rmq_remoting.message_queue import MessageQueue

from .members import FakeClient, FakeMembers
from .server import LOOPBACK, Processors
from .store import BORN_MS, FakeQueue, FakeStore


class FakeBroker(FakeStore, FakeMembers):
    """Serves sends, replies, retries, locks, offsets and topics."""

    def __init__(self, name: str, topics: dict[str, int]) -> None:
        super().__init__(topics)
        self.name = name
        self.permissions: dict[str, int] = {}
        self.listed = True
        # Address that clients get; None: the real one.
        self.announced: str | None = None
        self.auto_create = False
        self.sends: list[SendMessageRequestHeader] = []
        self.replies: list[SendMessageRequestHeader] = []
        # Locks of ordered consumers: owner of each queue, by group. They do not expire.
        self.locks: dict[tuple[str, MessageQueue], str] = {}
        # Messages sent back: by default they are redelivered at once, on the group's retry topic.
        self.sent_back: list[ConsumerSendMsgBackRequestHeader] = []
        self.dead_letters: list[MessageExt] = []
        self._decoder = SendHeaderDecoder()

    def processors(self) -> Processors:
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

    # --- sends and replies ---

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
                self.store(
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
            stored = [self.store(topic, 0, request.body, target.sys_flag, target.flag, properties)]
            self.dead_letters += stored
        else:
            stored = [
                self.store(
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
            self.store(topic, 0, message.body, message.sys_flag, message.flag, properties, times)
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
