"""Requests of this client that wait for a reply message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Answer, Result
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import CommandError
from rmq_remoting.message import MessageExt
from rmq_remoting.message_errors import MessageDecodeError
from rmq_remoting.message_properties import (
    PROPERTY_CORRELATION_ID,
    PROPERTY_REPLY_MESSAGE_ARRIVE_TIME,
    decode_properties,
)
from rmq_remoting.socket_addresses import HostPort
from rmq_remoting.sys_flags import MessageSysFlag
from rmq_remoting.tiers import InlineTier

from ..response_decoding import decompress_body

if TYPE_CHECKING:
    from rmq_remoting.headers.reply import ReplyMessageRequestHeader

log = logging.getLogger(__name__)

_CAPACITY: Final = 10_000
_MAX_WAIT_MS: Final = 60_000


class PendingReplies:
    """Pending replies by correlation id.

    `expect` and `forget` belong to the waiting loop, the rest to the network loop.

    The callers of `expect` bound their number.
    """

    def __init__(self, max_unpacked_body_bytes: int, now_ms: Callable[[], int]) -> None:
        self._max_unpacked_body_bytes = max_unpacked_body_bytes
        self._now_ms = now_ms
        # Several threads change it, each by single atomic operations.
        self._waiting: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Future[MessageExt]]] = {}

    def expect(self, correlation_id: str) -> asyncio.Future[MessageExt]:
        """Return a future for the reply with this id. The caller must `forget` it afterwards."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[MessageExt] = loop.create_future()
        self._waiting[correlation_id] = (loop, future)
        return future

    def forget(self, correlation_id: str) -> None:
        """Drop a pending reply."""
        self._waiting.pop(correlation_id, None)

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the processor."""
        tier = InlineTier("replies", capacity=_CAPACITY, max_wait_ms=_MAX_WAIT_MS)
        dispatcher.register([RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT], self.handle_reply, tier)

    def handle_reply(self, connection: Connection, request: RemotingCommand) -> Result:
        """326: deliver a reply. A late reply gets the same answer, and is dropped."""
        from rmq_remoting.headers.reply import ReplyMessageRequestHeader  # noqa: PLC0415

        header = ReplyMessageRequestHeader.decode(request.ext_fields)
        if header.sys_flag & MessageSysFlag.COMPRESSED and request.body:
            return asyncio.ensure_future(self._decompress(connection, request, header))
        return self._deliver(connection, request, self._message(header, request.body, header.sys_flag))

    async def _decompress(
        self, connection: Connection, request: RemotingCommand, header: ReplyMessageRequestHeader
    ) -> Answer:
        try:
            body = await decompress_body(request.body, header.sys_flag, self._max_unpacked_body_bytes)
        except MessageDecodeError as error:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"the reply cannot be decompressed: {error}"
            ) from error
        sys_flag = header.sys_flag & ~MessageSysFlag.COMPRESSED
        return self._deliver(connection, request, self._message(header, body, sys_flag))

    def _deliver(
        self, connection: Connection, request: RemotingCommand, message: MessageExt
    ) -> RemotingCommand:
        correlation_id = message.properties.get(PROPERTY_CORRELATION_ID, "")
        entry = self._waiting.pop(correlation_id, None)
        if entry is None:
            log.info(
                "reply dropped, its request has ended broker=%s correlation_id=%s",
                connection.peer,
                correlation_id,
            )
        else:
            loop, future = entry
            try:
                loop.call_soon_threadsafe(_resolve, future, message)
            except RuntimeError:
                if not loop.is_closed():
                    raise
                log.debug("reply dropped, the requester's loop has ended correlation_id=%s", correlation_id)
        return request.response(ResponseCode.SUCCESS)

    def _message(self, header: ReplyMessageRequestHeader, body: bytes, sys_flag: int) -> MessageExt:
        properties = decode_properties((header.properties or "").encode())
        properties[PROPERTY_REPLY_MESSAGE_ARRIVE_TIME] = str(self._now_ms())
        return MessageExt(
            header.topic,
            body,
            header.flag,
            properties,
            queue_id=header.queue_id,
            sys_flag=sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=_host(header.born_host),
            store_timestamp=header.store_timestamp,
            store_host=_host(header.store_host),
            reconsume_times=header.reconsume_times or 0,
        )


def _resolve(future: asyncio.Future[MessageExt], message: MessageExt) -> None:
    if not future.done():
        future.set_result(message)


def _host(text: str) -> HostPort:
    host, _, port = text.rpartition(":")
    return (host.strip("[]").lstrip("/"), int(port)) if port.isdigit() else (text, 0)
