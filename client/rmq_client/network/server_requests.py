"""Requests that brokers send to clients: codes 40, 220, 221, 307 and 309.

Methods import headers and bodies: a client without consumers does without these and without pydantic.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from typing import Final

from rmq_remoting.answers import Answer
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import CommandError
from rmq_remoting.tiers import InlineTier

from ..response_decoding import decode_all
from .members import ConsumerMember, Members

log = logging.getLogger(__name__)

_CAPACITY: Final = 1_000
_MAX_WAIT_MS: Final = 60_000


class ServerRequests:
    """Processors of these requests. Belongs to the network loop."""

    def __init__(self, members: Members, max_unpacked_body_bytes: int) -> None:
        self._members = members
        self._max_unpacked_body_bytes = max_unpacked_body_bytes

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the processors."""
        tier = InlineTier("client", capacity=_CAPACITY, max_wait_ms=_MAX_WAIT_MS)
        for code, processor in (
            (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self.consumer_ids_changed),
            (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self.reset_offsets),
            (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self.consumer_status),
            (RequestCode.GET_CONSUMER_RUNNING_INFO, self.running_info),
            (RequestCode.CONSUME_MESSAGE_DIRECTLY, self.consume_directly),
        ):
            dispatcher.register([code], processor, tier)

    def consumer_ids_changed(self, connection: Connection, request: RemotingCommand) -> None:
        """40: a member joined or left a group."""
        from rmq_remoting.headers.client import NotifyConsumerIdsChangedRequestHeader  # noqa: PLC0415

        group = NotifyConsumerIdsChangedRequestHeader.decode(request.ext_fields).consumer_group
        member = self._members.consumers.get(group)
        log.debug("group changed broker=%s group=%s; rebalancing", connection.peer, group)
        if member is not None:
            member.rebalance_soon()

    def reset_offsets(self, connection: Connection, request: RemotingCommand) -> None:
        """220: an administrator resets the offsets of a group."""
        from rmq_remoting.bodies.offsets import ResetOffsetBody  # noqa: PLC0415
        from rmq_remoting.headers.offsets import ResetOffsetRequestHeader  # noqa: PLC0415

        header = ResetOffsetRequestHeader.decode(request.ext_fields)
        offsets = ResetOffsetBody.decode(request.body).offset_table if request.body else {}
        log.info(
            "offsets reset by an administrator broker=%s group=%s queues=%d topic=%s",
            connection.peer,
            header.group,
            len(offsets),
            header.topic,
        )
        self._member(header.group).reset_offsets(header.topic, offsets)

    def consumer_status(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """221: return the consumed offsets of a consumer."""
        from rmq_remoting.bodies.offsets import GetConsumerStatusBody  # noqa: PLC0415
        from rmq_remoting.headers.consumer import GetConsumerStatusRequestHeader  # noqa: PLC0415

        header = GetConsumerStatusRequestHeader.decode(request.ext_fields)
        table = self._member(header.group).positions(header.topic)
        return request.response(
            ResponseCode.SUCCESS, body=GetConsumerStatusBody(message_queue_table=table).encode()
        )

    def running_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """307: return the state of a consumer, and the stacks of its threads if requested."""
        from rmq_remoting.headers.client import GetConsumerRunningInfoRequestHeader  # noqa: PLC0415

        header = GetConsumerRunningInfoRequestHeader.decode(request.ext_fields)
        info = self._member(header.consumer_group).running_info()
        if header.jstack_enable:
            info.jstack = thread_stacks()
        return request.response(ResponseCode.SUCCESS, body=info.encode())

    def consume_directly(self, connection: Connection, request: RemotingCommand) -> asyncio.Future[Answer]:
        """309: an administrator has a consumer process one message."""
        return asyncio.ensure_future(self._consume_directly(request))

    async def _consume_directly(self, request: RemotingCommand) -> Answer:
        from rmq_remoting.headers.client import ConsumeMessageDirectlyResultRequestHeader  # noqa: PLC0415

        header = ConsumeMessageDirectlyResultRequestHeader.decode(request.ext_fields)
        member = self._member(header.consumer_group)
        messages = await decode_all(request.body, self._max_unpacked_body_bytes)
        if len(messages) != 1:
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL, f"the body must contain one message, not {len(messages)}"
            )
        messages[0].broker_name = header.stored_broker_name or ""
        result = await member.consume_directly(messages[0])
        return request.response(ResponseCode.SUCCESS, body=result.encode())

    def _member(self, group: str) -> ConsumerMember:
        member = self._members.consumers.get(group)
        if member is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"this client has no consumer of group {group}")
        return member


def thread_stacks() -> str:
    """Return the stack of every thread of this process."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, '?')} ({ident})\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
