"""Queries for messages: by key, by id, with their groups and their traces."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from rmq_remoting.bodies.connection import ConsumerConnection
from rmq_remoting.bodies.heartbeat import SUBSCRIBE_ALL, ConsumeType, MessageModel
from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.transaction import ResumeCheckHalfMessageRequestHeader
from rmq_remoting.message import MessageExt

from ..errors import TopicNotFound, UsageError
from ..message_queries import DEFAULT_MAX_MESSAGES, MessageQueries, MessageQuery, QueryResult, time_range_ms
from ..trace.decoding import TraceEvent, decode_trace
from .arguments import checked
from .clients import ClientAdmin
from .lag import LagAdmin
from .results import MessageTrack, TrackStatus

_TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
_MAX_TRACE_MESSAGES: Final = 64


class QueryAdmin(ClientAdmin, LagAdmin):
    """Queries for messages."""

    def _queries(self) -> MessageQueries:
        self._running()
        return MessageQueries(self._api, self._settings.max_unpacked_body_bytes)

    @checked
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
        begin_ms, end_ms = time_range_ms(begin, end)
        if begin_ms > end_ms:
            raise UsageError(f"begin {begin} is after end {end}: no message can be stored between them")
        topic = self._namespace.wrap(topic)
        query = MessageQuery(topic, key, unique, begin_ms, end_ms, max_messages)
        result = await self._queries().query(await self.topic_route(topic), query)
        self._namespace.unwrap_topics(result.messages)
        return result

    @checked
    async def view_message(self, topic: str, message_id: str) -> MessageExt | None:
        """Return the message with an id of the broker (`offset_msg_id`) or of the producer (`msg_id`).

        Returns None if no broker of the topic has the message (any more, or yet). The messages of a batch
        share their `msg_id`: the first is returned. Raises ClientError if a broker that may have it does not
        answer.
        """
        message = await self._queries().view(await self.topic_route(topic), message_id)
        if message is not None:
            self._namespace.unwrap_topics([message])
        return message

    @checked
    async def track_message(self, message: MessageExt) -> list[MessageTrack]:
        """Return for each group of the message's topic whether it has consumed the message.

        `message` comes from `view_message` or another query. Brokers know offsets, not single messages: a
        group whose offset is behind the message counts as not having consumed it, even if a consumer has it.
        Raises ClientError.
        """
        return [
            MessageTrack(group, await self._status(group, message))
            for group in await self.topic_groups(message.topic)
        ]

    @checked
    async def message_trace(
        self,
        message_id: str,
        *,
        trace_topic: str = _TRACE_TOPIC,
        begin: datetime | None = None,
        end: datetime | None = None,
    ) -> list[TraceEvent]:
        """Return the events of a message's trace, the earliest first.

        `message_id` is the producer's (`msg_id`). There are events if producers and consumers trace, and the
        broker accepts traces (`traceTopicEnable`). Raises TopicNotFound if there is no trace topic, and other
        ClientErrors.
        """
        try:
            found = await self.query_messages(
                trace_topic, message_id, begin=begin, end=end, max_messages=_MAX_TRACE_MESSAGES
            )
        except TopicNotFound as error:
            raise TopicNotFound(
                f"there is no trace topic {trace_topic}: start producers and consumers with trace=Tracing(), "
                "and the broker with traceTopicEnable=true"
            ) from error
        events = [
            event
            for message in found.messages
            for event in decode_trace(message.body, client=message.born_host[0])
            if event.message_id == message_id
        ]
        known = {event.call_id: event for event in events if event.kind == "SubBefore"}
        return sorted(events, key=lambda event: _time_of_event(event, known))

    @checked
    async def resume_transaction_check(self, message: MessageExt) -> None:
        """Let a broker check a half message again that it had given up. Raises ClientError.

        Such messages are in the topic TRANS_CHECK_MAX_TIME_TOPIC.
        """
        await self._api.call(
            await self._broker(message.broker_name),
            RequestCode.RESUME_CHECK_HALF_MESSAGE,
            ResumeCheckHalfMessageRequestHeader(
                topic=self._namespace.wrap(message.topic), msg_id=message.offset_msg_id
            ),
            about=f"check of half message {message.msg_id}",
        )

    async def _status(self, group: str, message: MessageExt) -> TrackStatus:
        """Return the status as Apache's tool does (DefaultMQAdminExtImpl.messageTrackDetail)."""
        name = self._namespace.checked_group(group)
        broker = await self._broker(message.broker_name)
        members = await self._consumer_connection(broker, name)
        if members is not None and members.message_model is MessageModel.BROADCASTING:
            return TrackStatus.BROADCAST
        lag = await self.lag(group, message.topic)
        is_consumed = any(
            (queue.queue.broker_name, queue.queue.queue_id) == (message.broker_name, message.queue_id)
            and queue.committed > message.queue_offset
            for queue in lag.queues
        )
        if is_consumed:
            is_wanted = members is None or _wants(members, message, self._namespace.wrap(message.topic))
            return TrackStatus.CONSUMED if is_wanted else TrackStatus.FILTERED
        return TrackStatus.NOT_ONLINE if members is None else TrackStatus.NOT_CONSUMED


def _wants(members: ConsumerConnection, message: MessageExt, topic: str) -> bool:
    """Whether the group's tags include the message's; True for other filters, which brokers evaluate."""
    subscription = members.subscription_table.get(topic)
    if subscription is None or members.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return True
    tags = set(subscription.tags_set)
    return not tags or SUBSCRIBE_ALL in tags or message.tags in tags


def _time_of_event(event: TraceEvent, begins: dict[str, TraceEvent]) -> tuple[float, bool]:
    """Return the key by which events are ordered.

    Old clients write no time for the end of a call: it follows its begin.
    """
    time = event.time
    if time is None and event.call_id in begins:
        time = begins[event.call_id].time
    return (0.0 if time is None else time.timestamp(), event.kind == "SubAfter")
