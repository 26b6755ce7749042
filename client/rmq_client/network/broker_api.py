"""Typed calls to brokers, one method per request code.

The calls work on any loop: on the network loop over the connections themselves, elsewhere over a bridge.
Methods import headers and bodies: a client that only pulls does without these and without pydantic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import RequestError
from rmq_remoting.message_queue import MessageQueue

from ..errors import broker_error, readable, request_failure
from ..names import AUTO_CREATE_TOPIC
from ..settings import ClientSettings
from .plain_answers import PlainHeader, QueueReach, decode_topic_stats

if TYPE_CHECKING:
    from rmq_remoting.bodies.heartbeat import HeartbeatData, SubscriptionData
    from rmq_remoting.bodies.topic import TopicConfig
    from rmq_remoting.headers.base import TypedHeader
    from rmq_remoting.headers.offsets import BoundaryType

T = TypeVar("T")


class Requester(Protocol):
    """Carries a request to an address: the broker connections, or a bridge to them."""

    async def request(
        self, address: str, command: RemotingCommand, timeout_seconds: float
    ) -> RemotingCommand:
        """Send a request and wait for its response. Raises RequestError."""


class BrokerApi:
    """Calls to brokers by address.

    All raise BrokerError for a refusal and UnreachableError without an answer.
    """

    def __init__(self, requester: Requester, settings: ClientSettings) -> None:
        self._requester = requester
        self._settings = settings

    async def call(
        self,
        address: str,
        code: RequestCode,
        header: TypedHeader | None = None,
        body: bytes = b"",
        *,
        about: str = "",
    ) -> RemotingCommand:
        """Send any request, and return the response with SUCCESS. `about` names the request in errors."""
        about = about or code.name
        response = await self._request(address, code, header, body, about)
        if response.code != ResponseCode.SUCCESS:
            raise broker_error(response.code, response.remark, address, about)
        return response

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: TypedHeader,
        about: str,
        read: Callable[[RemotingCommand], T],
    ) -> T:
        """Send a request, and return what `read` decodes from the response with SUCCESS."""
        response = await self.call(address, code, header, about=about)
        with readable(address, about):
            return read(response)

    async def _request(
        self, address: str, code: RequestCode, header: TypedHeader | None, body: bytes, about: str
    ) -> RemotingCommand:
        fields = None if header is None else header.encode()
        request = RemotingCommand.request(code, fields, body, serialization=self._settings.serialization)
        try:
            return await self._requester.request(address, request, self._settings.request_timeout_seconds)
        except RequestError as error:
            raise request_failure(error, about) from error

    # --- clients ---

    async def heartbeat(self, address: str, data: HeartbeatData) -> None:
        """34: announce this client with its groups and subscriptions."""
        from rmq_remoting.headers.client import HeartbeatRequestHeader  # noqa: PLC0415

        await self.call(address, RequestCode.HEART_BEAT, HeartbeatRequestHeader(), data.encode())

    async def unregister(
        self,
        address: str,
        client_id: str,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
    ) -> None:
        """35: leave the groups."""
        from rmq_remoting.headers.client import UnregisterClientRequestHeader  # noqa: PLC0415

        header = UnregisterClientRequestHeader(
            client_id=client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        await self.call(address, RequestCode.UNREGISTER_CLIENT, header)

    async def check_client(
        self, address: str, client_id: str, group: str, subscription: SubscriptionData
    ) -> None:
        """46: ask whether the broker can filter by this subscription. A broker that cannot refuses."""
        from rmq_remoting.bodies.checks import CheckClientRequestBody  # noqa: PLC0415

        body = CheckClientRequestBody(client_id=client_id, group=group, subscription_data=subscription)
        await self.call(
            address,
            RequestCode.CHECK_CLIENT_CONFIG,
            None,
            body.encode(),
            about=f"subscription {subscription.sub_string!r} of group {group} to {subscription.topic}",
        )

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """38: return the client ids of the group's live consumers."""
        from rmq_remoting.bodies.group import GetConsumerListByGroupResponseBody  # noqa: PLC0415
        from rmq_remoting.headers.client import GetConsumerListByGroupRequestHeader  # noqa: PLC0415

        header = GetConsumerListByGroupRequestHeader(consumer_group=group)
        return await self.ask(
            address,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            header,
            f"consumers of group {group}",
            lambda answer: GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list,
        )

    # --- offsets ---

    async def committed_offset(
        self, address: str, group: str, queue: MessageQueue, *, zero_for_young_queues: bool = False
    ) -> int | None:
        """14: return the committed offset of a group in a queue, None if it has committed none.

        `zero_for_young_queues`: return 0 rather than None if the first message of the queue is still in
        memory, so that a group that begins at the end misses no message of a new queue.
        """
        from rmq_remoting.headers.offsets import (  # noqa: PLC0415
            QueryConsumerOffsetRequestHeader,
            QueryConsumerOffsetResponseHeader,
        )

        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
            set_zero_if_not_found=None if zero_for_young_queues else False,
        )
        about = f"offset of group {group} in {queue}"
        response = await self._request(address, RequestCode.QUERY_CONSUMER_OFFSET, header, b"", about)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if response.code != ResponseCode.SUCCESS:
            raise broker_error(response.code, response.remark, address, about)
        with readable(address, about):
            offset = QueryConsumerOffsetResponseHeader.decode(response.ext_fields).offset
        return offset if offset >= 0 else None

    async def commit_offset(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """15: commit the next offset that the group consumes."""
        from rmq_remoting.headers.offsets import UpdateConsumerOffsetRequestHeader  # noqa: PLC0415

        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        await self.call(
            address,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            header,
            about=f"commit offset {offset} of group {group} in {queue}",
        )

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """30: return the offset that the next message of the queue will get."""
        from rmq_remoting.headers.offsets import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader  # noqa: PLC0415

        header = GetMaxOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return await self.ask(
            address,
            RequestCode.GET_MAX_OFFSET,
            header,
            f"max offset of {queue}",
            lambda answer: GetMaxOffsetResponseHeader.decode(answer.ext_fields).offset,
        )

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """31: return the offset of the oldest message in the queue."""
        from rmq_remoting.headers.offsets import GetMinOffsetRequestHeader, GetMinOffsetResponseHeader  # noqa: PLC0415

        header = GetMinOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return await self.ask(
            address,
            RequestCode.GET_MIN_OFFSET,
            header,
            f"min offset of {queue}",
            lambda answer: GetMinOffsetResponseHeader.decode(answer.ext_fields).offset,
        )

    async def search_offset(
        self,
        address: str,
        queue: MessageQueue,
        timestamp_ms: int,
        boundary: BoundaryType | None = None,
    ) -> int:
        """29: return the offset of the first message that was stored at that time or later."""
        from rmq_remoting.headers.offsets import (  # noqa: PLC0415
            BoundaryType,
            SearchOffsetRequestHeader,
            SearchOffsetResponseHeader,
        )

        header = SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            boundary_type=BoundaryType.LOWER if boundary is None else boundary,
            broker_name=queue.broker_name,
        )
        return await self.ask(
            address,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            header,
            f"offset of time {timestamp_ms} in {queue}",
            lambda answer: SearchOffsetResponseHeader.decode(answer.ext_fields).offset,
        )

    # --- topics ---

    async def create_topic(self, address: str, config: TopicConfig) -> None:
        """17: create or change a topic on this broker."""
        from rmq_remoting.headers.topic import CreateTopicRequestHeader  # noqa: PLC0415

        attributes = ",".join(f"{name}={value}" for name, value in config.attributes.items())
        header = CreateTopicRequestHeader(
            topic=config.topic_name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type.value,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=attributes or None,
        )
        await self.call(
            address,
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            header,
            about=f"create topic {config.topic_name}",
        )

    async def delete_topic(self, address: str, topic: str) -> None:
        """215: delete a topic on this broker."""
        from rmq_remoting.headers.topic import DeleteTopicRequestHeader  # noqa: PLC0415

        header = DeleteTopicRequestHeader(topic=topic)
        await self.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, header, about=f"delete topic {topic}")

    async def topic_stats(self, address: str, topic: str) -> Mapping[MessageQueue, QueueReach]:
        """202: return the offsets of the topic's queues on this broker."""
        header = PlainHeader(topic=topic)
        return await self.ask(
            address,
            RequestCode.GET_TOPIC_STATS_INFO,
            header,
            f"statistics of topic {topic}",
            lambda answer: decode_topic_stats(answer.body),
        )
