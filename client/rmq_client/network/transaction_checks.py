"""Transaction checks: brokers ask for the outcome of transactions that were left open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import RequestError
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_errors import MessageDecodeError
from rmq_remoting.message_properties import PROPERTY_PRODUCER_GROUP
from rmq_remoting.sys_flags import MessageSysFlag
from rmq_remoting.tasks import cancel_all
from rmq_remoting.tiers import InlineTier

from ..response_decoding import decompress_body
from ..transactions import HalfMessagePosition, TransactionState, end_request

if TYPE_CHECKING:
    from rmq_remoting.headers.transaction import CheckTransactionStateRequestHeader

log = logging.getLogger(__name__)

_CAPACITY: Final = 10_000
_MAX_WAIT_MS: Final = 60_000
# Checks in progress. Brokers repeat further ones (checkRequestHoldMax).
_MAX_CHECKS_IN_FLIGHT: Final = 2000


class TransactionChecks:
    """Processes transaction checks of brokers. Belongs to the network loop."""

    def __init__(self, serialization: Serialization, max_unpacked_body_bytes: int) -> None:
        self._serialization = serialization
        self._max_unpacked_body_bytes = max_unpacked_body_bytes
        self._answerers: dict[str, list[TransactionChecker]] = {}
        self._in_flight: set[asyncio.Task[None]] = set()

    def add(self, group: str, answerer: TransactionChecker) -> None:
        """Register a producer of the group that can answer checks."""
        self._answerers.setdefault(group, []).append(answerer)

    def remove(self, group: str, answerer: TransactionChecker) -> None:
        """Remove a producer."""
        answerers = self._answerers.get(group, [])
        if answerer in answerers:
            answerers.remove(answerer)
        if not answerers:
            self._answerers.pop(group, None)

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the processor."""
        tier = InlineTier("transaction checks", capacity=_CAPACITY, max_wait_ms=_MAX_WAIT_MS)
        dispatcher.register([RequestCode.CHECK_TRANSACTION_STATE], self.handle_check, tier)

    def handle_check(self, connection: Connection, request: RemotingCommand) -> None:
        """39: start a check; its answer is a request of its own, 37."""
        from rmq_remoting.headers.transaction import CheckTransactionStateRequestHeader  # noqa: PLC0415

        header = CheckTransactionStateRequestHeader.decode(request.ext_fields)
        try:
            messages = decode_messages(request.body, decompress_bodies=False)
        except MessageDecodeError as error:
            _log_unreadable(connection, error)
            return
        group = messages[0].properties.get(PROPERTY_PRODUCER_GROUP, "") if messages else ""
        answerers = self._answerers.get(group)
        if not answerers:
            log.info(
                "transaction check dropped, no producer of this client checks the group broker=%s group=%s",
                connection.peer,
                group,
            )
            return
        if len(self._in_flight) >= _MAX_CHECKS_IN_FLIGHT:
            log.warning(
                "transaction check dropped, too many in progress limit=%d; the broker repeats it",
                _MAX_CHECKS_IN_FLIGHT,
            )
            return
        messages[0].broker_name = header.broker_name or ""
        task = asyncio.ensure_future(self._answer(connection, header, group, messages[0], answerers[-1]))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _answer(
        self,
        connection: Connection,
        header: CheckTransactionStateRequestHeader,
        group: str,
        message: MessageExt,
        answerer: TransactionChecker,
    ) -> None:
        if message.sys_flag & MessageSysFlag.COMPRESSED and message.body:
            try:
                message.body = await decompress_body(
                    message.body, message.sys_flag, self._max_unpacked_body_bytes
                )
            except MessageDecodeError as error:
                _log_unreadable(connection, error)
                return
            message.sys_flag &= ~MessageSysFlag.COMPRESSED
        state, remark = await answerer(message)
        place = HalfMessagePosition(
            header.topic,
            header.broker_name,
            header.commit_log_offset,
            header.tran_state_table_offset,
            message.msg_id,
            header.transaction_id,
        )
        request = end_request(
            group, place, state, remark=remark, from_check=True, serialization=self._serialization
        )
        try:
            connection.send_oneway(request)
        except RequestError as error:
            log.info(
                "transaction check not answered id=%s cause=%s; the broker repeats it", message.msg_id, error
            )

    async def stop(self) -> None:
        """Cancel the checks in progress. Brokers repeat them."""
        await cancel_all(self._in_flight)


def _log_unreadable(connection: Connection, error: MessageDecodeError) -> None:
    log.warning(
        "transaction check dropped, its message is unreadable broker=%s cause=%s", connection.peer, error
    )


TransactionChecker = Callable[[MessageExt], Awaitable[tuple[TransactionState, str | None]]]
"""Returns the outcome of the transaction of a message, and a remark. Called on the network loop; does not
raise.
"""
