"""PullMessage, UpdateOffset, GetOffset and QueryOffset: a client reads a queue from an offset of its choice.

Apache RocketMQ 5.3.3's proxy lacks these methods. Statuses follow those of its other methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from rmq_client.errors import broker_error, readable
from rmq_client.network.broker_api import BrokerApi
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_queue import MessageQueue
from rmq_remoting.sys_flags import PullSysFlag

from .brokers import Brokers
from .calls import Call
from .held_calls import HeldCalls
from .messages import fill, unpack_bodies
from .protocol import definition_pb2 as pb
from .protocol import service_pb2 as rpc
from .protocol.definition_pb2 import Code
from .receiving import subscription_of
from .settings import ProxySettings
from .statuses import Refusal, ok, status, status_of
from .validation import check_group, check_time_ms, check_topic

_MAX_PULLED: Final = 32
_ANSWER_MARGIN_SECONDS: Final = 10.0
_NOTHING: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})


class Pulling:
    """Requests of consumers that keep their own offsets."""

    def __init__(
        self, brokers: Brokers, offsets: BrokerApi, settings: ProxySettings, held: HeldCalls
    ) -> None:
        """`offsets` carries requests for offsets over the same backend as `brokers`."""
        self._brokers = brokers
        self._offsets = offsets
        self._settings = settings
        self._held = held

    async def pull(
        self, call: Call, request: rpc.PullMessageRequest
    ) -> AsyncGenerator[rpc.PullMessageResponse, None]:
        """Yield the status, the messages, and the offset of the next pull. A failure is a status, too."""
        pulling = asyncio.get_running_loop().create_task(self._pulled(call, request))
        nothing = status(Code.MESSAGE_NOT_FOUND, "no new message"), list[MessageExt](), request.offset
        try:
            outcome, messages, next_offset = await self._held.wait(pulling, nothing)
        except Exception as error:
            yield rpc.PullMessageResponse(status=status_of(error))
            return
        finally:
            pulling.cancel()
        yield rpc.PullMessageResponse(status=outcome)
        for message in messages:
            response = rpc.PullMessageResponse()
            fill(response.message, message)
            yield response
        yield rpc.PullMessageResponse(next_offset=next_offset)

    async def update_offset(self, call: Call, request: rpc.UpdateOffsetRequest) -> rpc.UpdateOffsetResponse:
        """Commit the offset of a group. Raises Refusal, ClientError."""
        queue, group = _queue(request.message_queue), check_group(request.group.name)
        if request.offset < 0:
            raise Refusal(Code.ILLEGAL_OFFSET, f"the offset is {request.offset}, it must be at least 0")
        address = await self._address(queue)
        await self._offsets.commit_offset(address, group, queue, request.offset)
        return rpc.UpdateOffsetResponse(status=ok())

    async def get_offset(self, call: Call, request: rpc.GetOffsetRequest) -> rpc.GetOffsetResponse:
        """Return the committed offset of a group. Raises Refusal, ClientError."""
        queue, group = _queue(request.message_queue), check_group(request.group.name)
        offset = await self._offsets.committed_offset(await self._address(queue), group, queue)
        if offset is None:
            raise Refusal(Code.OFFSET_NOT_FOUND, f"group {group} has committed no offset of {queue}")
        return rpc.GetOffsetResponse(status=ok(), offset=offset)

    async def query_offset(self, call: Call, request: rpc.QueryOffsetRequest) -> rpc.QueryOffsetResponse:
        """Return the first or next offset of a queue, or that of a time. Raises Refusal, ClientError."""
        queue = _queue(request.message_queue)
        address = await self._address(queue)
        if request.query_offset_policy == pb.BEGINNING:
            offset = await self._offsets.min_offset(address, queue)
        elif request.query_offset_policy == pb.END:
            offset = await self._offsets.max_offset(address, queue)
        elif request.HasField("timestamp"):
            time_ms = check_time_ms(request.timestamp, Code.BAD_REQUEST, "the timestamp")
            offset = await self._offsets.search_offset(address, queue, time_ms)
        else:
            raise Refusal(Code.BAD_REQUEST, "the policy TIMESTAMP needs a timestamp")
        return rpc.QueryOffsetResponse(status=ok(), offset=offset)

    async def _pulled(
        self, call: Call, request: rpc.PullMessageRequest
    ) -> tuple[pb.Status, list[MessageExt], int]:
        queue, group = _queue(request.message_queue), check_group(request.group.name)
        if request.batch_size < 1:
            raise Refusal(Code.BAD_REQUEST, f"the batch size is {request.batch_size}, it must be at least 1")
        subscription = subscription_of(queue.topic, request.filter_expression)
        poll_ms = min(int(request.long_polling_timeout.ToMilliseconds()), self._settings.max_long_polling_ms)
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=request.offset,
            max_msg_nums=min(request.batch_size, _MAX_PULLED),
            sys_flag=PullSysFlag.build(suspend=poll_ms > 0, subscription=True),
            commit_offset=0,
            suspend_timeout_ms=max(poll_ms, 0),
            subscription=subscription.data.sub_string,
            sub_version=0,
            expression_type=subscription.data.expression_type,
            max_msg_bytes=None,
            broker_name=queue.broker_name,
        )
        address = await self._address(queue)
        about = f"pull from {queue} at {request.offset}"
        call.slot.release()  # from here on the broker may hold the call
        response = await self._brokers.ask(
            address,
            RequestCode.PULL_MESSAGE,
            header.encode(),
            about=about,
            timeout_seconds=max(poll_ms, 0) / 1000 + _ANSWER_MARGIN_SECONDS,
        )
        if response.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_OFFSET_MOVED, *_NOTHING):
            raise broker_error(response.code, response.remark, address, about)
        messages: list[MessageExt] = []
        with readable(address, about):
            answer = PullMessageResponseHeader.decode(response.ext_fields)
            if response.code == ResponseCode.SUCCESS:
                messages = subscription.select(decode_messages(response.body, decompress_bodies=False))
        await unpack_bodies(messages)
        return _outcome(response.code, messages), messages, answer.next_begin_offset

    async def _address(self, queue: MessageQueue) -> str:
        return await self._brokers.address(queue.broker_name, Code.BAD_REQUEST)


def _outcome(code: int, messages: list[MessageExt]) -> pb.Status:
    if code == ResponseCode.PULL_OFFSET_MOVED:
        return status(Code.ILLEGAL_OFFSET, "the queue has no message at this offset; use next_offset")
    return ok() if messages else status(Code.MESSAGE_NOT_FOUND, "no new message")


def _queue(queue: pb.MessageQueue) -> MessageQueue:
    """Return a queue. Raises Refusal without a broker or for an impossible name."""
    topic = check_topic(queue.topic.name)
    if not queue.broker.name or queue.id < 0:
        raise Refusal(Code.BAD_REQUEST, "the message queue needs the name of its broker and an id")
    return MessageQueue(topic, queue.broker.name, queue.id)
