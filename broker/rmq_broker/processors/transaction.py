"""Request 37: a producer ends a transaction. Request 323: the checks of one that was given up are resumed.

Source: Apache RocketMQ 5.3.3, EndTransactionProcessor, AdminBrokerProcessor.resumeCheckHalfMessage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Answer, Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError, HeaderError, shown
from rmq_remoting.headers.transaction import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from rmq_remoting.message_errors import MessageIdError
from rmq_remoting.message_ids import parse_offset_message_id
from rmq_remoting.sys_flags import MessageSysFlag

from ..delivery.cold_reads import ClientGone, ColdReads
from ..delivery.store_refusals import refusal
from ..store.api import ColdData, MessageRejected, StoreUnavailable
from .flushed_answers import respond_if_flushed

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection

    from ..store.api import MessageStore
    from ..transactions.service import TransactionService

_ENDS: Final = (MessageSysFlag.TRANSACTION_COMMIT, MessageSysFlag.TRANSACTION_ROLLBACK)


class TransactionProcessor:
    """Finds half messages, and ends or resumes their transactions."""

    def __init__(self, transactions: TransactionService, store: MessageStore, cold: ColdReads) -> None:
        self._transactions = transactions
        self._store = store
        self._cold = cold

    def end(self, connection: Connection, request: RemotingCommand) -> Result:
        """Answer once the outcome is stored, with SYNC_FLUSH once it is flushed.

        Most producers send one-way requests.
        """
        header = EndTransactionRequestHeader.decode(request.ext_fields)
        if header.commit_or_rollback == MessageSysFlag.TRANSACTION_NOT:
            # The producer does not know yet: it will be checked (again). Apache's broker does not answer.
            return request.response(ResponseCode.SUCCESS)
        if header.commit_or_rollback not in _ENDS:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"commitOrRollback={header.commit_or_rollback} must be 8 (commit), 12 (rollback) or 0 "
                "(not known yet)",
            )

        known, end = self._transactions.ending.known(header), partial(self._transactions.ending.end, header)
        if known is not None and known.message is not None:
            return self._act(request, None, end)
        known_size = 0 if known is None else known.size
        return self._with_record(connection, request, header.commit_log_offset, end, known_size)

    def resume(self, connection: Connection, request: RemotingCommand) -> Result:
        """Answer as `end`, once the half message is stored again."""
        header = ResumeCheckHalfMessageRequestHeader.decode(request.ext_fields)
        message_id = header.msg_id or ""
        try:
            offset = parse_offset_message_id(message_id).physical_offset
        except MessageIdError as error:
            raise HeaderError(f"msgId={shown(message_id)} is no offset message id") from error
        return self._with_record(
            connection,
            request,
            offset,
            lambda record: self._transactions.resumption.resume(record, message_id),
        )

    def _with_record(
        self,
        connection: Connection,
        request: RemotingCommand,
        offset: int,
        act: Callable[[bytes | None], None],
        known_size: int = 0,
    ) -> Result:
        """Call `act` with the record at a physical offset, which is read in a thread if it has to be."""
        try:
            # The half message need not be flushed: its producer may have been checked, or may not wait.
            record = self._store.record_now(offset, entered=False, known_size=known_size)
        except ColdData:
            return asyncio.get_running_loop().create_task(
                self._when_read(connection, request, offset, act), name="transaction"
            )
        return self._act(request, record, act)

    async def _when_read(
        self,
        connection: Connection,
        request: RemotingCommand,
        offset: int,
        act: Callable[[bytes | None], None],
    ) -> Answer:
        try:
            record = await self._cold.run(connection, lambda: self._store.record_at(offset))
        except ClientGone:
            return None  # another producer of its group will be asked
        answer = self._act(request, record, act)
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _act(
        self, request: RemotingCommand, record: bytes | None, act: Callable[[bytes | None], None]
    ) -> Result:
        try:
            act(record)
        except (StoreUnavailable, MessageRejected) as error:
            raise refusal(error) from error
        if request.is_oneway:
            return request.response(ResponseCode.SUCCESS)
        return respond_if_flushed(
            self._store,
            request.response(ResponseCode.SUCCESS),
            "the outcome was stored, but is not flushed yet: if it is lost, the producer group is checked",
        )
