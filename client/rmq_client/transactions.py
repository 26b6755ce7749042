"""Transactions, as brokers know them: how one ends, and brokers that ask what became of one.

Source: Apache RocketMQ 5.3.3, DefaultMQProducerImpl.endTransaction and checkTransactionState,
ClientRemotingProcessor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher, InlineTier
from rmq_remoting.errors import RequestError
from rmq_remoting.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_errors import MessageDecodeError
from rmq_remoting.message_properties import PROPERTY_PRODUCER_GROUP
from rmq_remoting.sys_flags import MessageSysFlag

log = logging.getLogger("rmq.client.transactions")

_CAPACITY: Final = 10_000
_MAX_WAIT_MS: Final = 60_000
# Questions that are being answered; what does not fit is asked again (checkRequestHoldMax).
_MAX_UNDER_WAY: Final = 2000


class TransactionState(Enum):
    """What becomes of a message that was sent in a transaction."""

    COMMIT = MessageSysFlag.TRANSACTION_COMMIT
    ROLLBACK = MessageSysFlag.TRANSACTION_ROLLBACK
    UNKNOWN = MessageSysFlag.TRANSACTION_NOT  # not known yet: the broker asks (again)


@dataclass(frozen=True, slots=True)
class HalfPlace:
    """Which half message is meant: its places in the broker's log and queue, and its ids."""

    topic: str | None
    broker_name: str | None
    commit_log_offset: int
    queue_offset: int
    msg_id: str
    transaction_id: str | None


def end_request(
    group: str,
    place: HalfPlace,
    state: TransactionState,
    *,
    remark: str | None = None,
    from_check: bool = False,
    serialization: Serialization,
) -> RemotingCommand:
    """37, one way: what became of a transaction."""
    header = EndTransactionRequestHeader(
        commit_log_offset=place.commit_log_offset,
        commit_or_rollback=state.value,
        from_transaction_check=from_check,
        msg_id=place.msg_id,
        producer_group=group,
        topic=place.topic,
        tran_state_table_offset=place.queue_offset,
        transaction_id=place.transaction_id,
        broker_name=place.broker_name,
    )
    request = RemotingCommand.request(
        RequestCode.END_TRANSACTION, header.encode(), oneway=True, serialization=serialization
    )
    request.remark = remark
    return request


Answerer = Callable[[MessageExt], Awaitable[tuple[TransactionState, str | None]]]
"""What became of the transaction of a message, and a remark. Called on the network loop; does not raise."""


class TransactionChecks:
    """Answers brokers that ask about transactions. Belongs to the network loop."""

    def __init__(self, serialization: Serialization, max_unpacked_body_bytes: int) -> None:
        self._serialization = serialization
        self._max_unpacked_body_bytes = max_unpacked_body_bytes
        self._answerers: dict[str, list[Answerer]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    def add(self, group: str, answerer: Answerer) -> None:
        """A producer of the group can tell."""
        self._answerers.setdefault(group, []).append(answerer)

    def remove(self, group: str, answerer: Answerer) -> None:
        """It cannot any more."""
        answerers = self._answerers.get(group, [])
        if answerer in answerers:
            answerers.remove(answerer)
        if not answerers:
            self._answerers.pop(group, None)

    def register(self, dispatcher: Dispatcher) -> None:
        """Put the processor into the table."""
        tier = InlineTier("transaction checks", capacity=_CAPACITY, max_wait_ms=_MAX_WAIT_MS)
        dispatcher.register([RequestCode.CHECK_TRANSACTION_STATE], self.asked, tier)

    def asked(self, connection: Connection, request: RemotingCommand) -> None:
        """39: the answer is a request of its own, 37."""
        header = CheckTransactionStateRequestHeader.decode(request.ext_fields)
        try:
            messages = decode_messages(request.body, max_body_bytes=self._max_unpacked_body_bytes)
        except MessageDecodeError as error:
            log.warning(
                "%s asks about a transaction, but its message is unreadable: %s", connection.peer, error
            )
            return
        group = messages[0].properties.get(PROPERTY_PRODUCER_GROUP, "") if messages else ""
        answerers = self._answerers.get(group)
        if not answerers:
            log.info(
                "%s asks about a transaction of group %s, which nobody checks here", connection.peer, group
            )
            return
        if len(self._under_way) >= _MAX_UNDER_WAY:
            log.warning("%d questions about transactions are under way: one is left out", _MAX_UNDER_WAY)
            return
        messages[0].broker_name = header.broker_name or ""
        task = asyncio.ensure_future(self._answer(connection, header, group, messages[0], answerers[-1]))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _answer(
        self,
        connection: Connection,
        header: CheckTransactionStateRequestHeader,
        group: str,
        message: MessageExt,
        answerer: Answerer,
    ) -> None:
        state, remark = await answerer(message)
        place = HalfPlace(
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
            log.info("what became of transaction %s cannot be told now: %s", message.msg_id, error)

    async def stop(self) -> None:
        """End what is under way: brokers ask again."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
