"""Request 37: a producer ends a transaction. Request 323: the checks of one that was given up are resumed.

Source: Apache RocketMQ 5.3.3, EndTransactionProcessor, AdminBrokerProcessor.resumeCheckHalfMessage.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.daemon.access.broker_requests import PUB, UPDATE
from rmq_remoting.errors import CommandError, HeaderError, shown
from rmq_remoting.headers.transaction import ResumeCheckHalfMessageRequestHeader
from rmq_remoting.headers.transaction_end import EndTransactionRequestHeader
from rmq_remoting.message_errors import MessageIdError
from rmq_remoting.message_ids import parse_offset_message_id
from rmq_remoting.sys_flags import MessageSysFlag

from ..delivery.store_refusals import refusal
from ..store.api import ColdData, MessageRejected, StoreUnavailable
from .durable_answers import respond_if_durable

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.access.needs import Actions

    from ..access.stored_topics import StoredTopics, TopicCheck
    from ..store.api import MessageStore
    from ..transactions.service import TransactionService
    from .cold_records import ColdRecords

_ENDS: Final = (MessageSysFlag.TRANSACTION_COMMIT, MessageSysFlag.TRANSACTION_ROLLBACK)


class TransactionProcessor:
    """Finds half messages, and ends or resumes their transactions."""

    def __init__(
        self,
        transactions: TransactionService,
        store: MessageStore,
        cold: ColdRecords,
        stored_topics: StoredTopics,
    ) -> None:
        self._ending = transactions.ending
        self._resumption = transactions.resumption
        self._store = store
        self._cold = cold
        self._stored_topics = stored_topics

    def end(self, connection: Connection, request: RemotingCommand) -> Result:
        """Answer once the outcome is stored, with SYNC_FLUSH once it is flushed.

        Most producers send one-way requests.
        """
        header = EndTransactionRequestHeader.decode(request.ext_fields)
        if self._store.is_replica:
            raise CommandError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "this broker is a replica (brokerRole=SLAVE) and cannot store the outcome of a transaction: "
                "the broker that takes over the half message will ask the producer, or the master will",
            )
        if header.commit_or_rollback == MessageSysFlag.TRANSACTION_NOT:
            # The producer does not know yet: it will be checked (again). Apache's broker does not answer.
            return request.response(ResponseCode.SUCCESS)
        if header.commit_or_rollback not in _ENDS:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"commitOrRollback={header.commit_or_rollback} must be 8 (commit), 12 (rollback) or 0 "
                "(not known yet)",
            )
        check = self._check(connection, request, PUB, header.topic)
        known = self._ending.known(header)
        if known is not None and known.message is not None:
            return self._end(request, header, None, check)
        return self._with_record(
            connection,
            header.commit_log_offset,
            lambda record: self._end(request, header, record, check),
            0 if known is None else known.size,
        )

    def resume(self, connection: Connection, request: RemotingCommand) -> Result:
        """Answer as `end`, once the half message is stored again."""
        header = ResumeCheckHalfMessageRequestHeader.decode(request.ext_fields)
        message_id = header.msg_id or ""
        try:
            offset = parse_offset_message_id(message_id).physical_offset
        except MessageIdError as error:
            raise HeaderError(f"msgId={shown(message_id)} is no offset message id") from error
        check = self._check(connection, request, UPDATE, header.topic)
        return self._with_record(
            connection, offset, lambda record: self._resume(request, record, message_id, check), 0
        )

    def _check(
        self, connection: Connection, request: RemotingCommand, actions: Actions, named: str | None
    ) -> TopicCheck | None:
        """Return the check of a half message's topic; a client that names none has rights for all topics."""
        if not named or not self._stored_topics.are_checked:
            return None
        return partial(self._stored_topics.check, connection, request, actions)

    def _with_record(
        self,
        connection: Connection,
        offset: int,
        act: Callable[[bytes | None], Result],
        known_size: int,
    ) -> Result:
        """Return the result of `act` for the record at a physical offset; 0 is no known size."""
        try:
            # The half message need not be flushed: its producer may have been checked, or may not wait.
            record = self._store.record_now(offset, entered=False, known_size=known_size)
        except ColdData:
            return self._cold.read(connection, offset, act)
        return act(record)

    def _end(
        self,
        request: RemotingCommand,
        header: EndTransactionRequestHeader,
        record: bytes | None,
        check: TopicCheck | None,
    ) -> Result:
        try:
            self._ending.end(header, record, check)
        except (StoreUnavailable, MessageRejected) as error:
            raise refusal(error) from error
        return self._done(request)

    def _resume(
        self, request: RemotingCommand, record: bytes | None, message_id: str, check: TopicCheck | None
    ) -> Result:
        try:
            self._resumption.resume(record, message_id, check)
        except (StoreUnavailable, MessageRejected) as error:
            raise refusal(error) from error
        return self._done(request)

    def _done(self, request: RemotingCommand) -> Result:
        if request.is_oneway:
            return None
        return respond_if_durable(
            self._store,
            request.response(ResponseCode.SUCCESS),
            "the outcome was stored, but is not flushed yet: if it is lost, the producer group is checked",
        )
