"""End transactions: a committed half message is stored in its own topic, a rolled-back one is dropped.

Source: Apache RocketMQ 5.3.3, EndTransactionProcessor. Apache's broker accepts an outcome for any half
message that is still in the log, so that a repeated commit stores the message twice. Here a transaction's
outcome is final, and reporting it again is idempotent.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.daemon.histogram import Histogram
from rmq_remoting.errors import CommandError, shown
from rmq_remoting.message_properties import (
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    decode_properties,
    find_property,
)
from rmq_remoting.sys_flags import MessageSysFlag

from ..delivery.inner_message import InnerMessage, StoredMessage, read_message
from ..topics.names import TRANSACTION_HALF_TOPIC
from .half_messages import HalfMessage, Outcome

if TYPE_CHECKING:
    from rmq_remoting.headers.transaction_end import EndTransactionRequestHeader

    from ..access.stored_topics import TopicCheck
    from ..clock import Clocks
    from ..delivery.message_writer import MessageWriter
    from ..settings.transactions import TransactionSettings
    from ..topics.table import TopicTable
    from .half_messages import HalfMessages
    from .op_messages import OpMessages

log = logging.getLogger("rmq.broker.transactions")

# Upper bounds in seconds of the time from send to commit (Apache's rocketmq_finish_message_latency).
_LATENCY_BOUNDS_SECONDS: Final = (5, 60, 600, 3600, 43_200, 86_400)
_OF_HALF_MESSAGES: Final = PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET.encode()


class Ending:
    """Ends transactions by the outcome that their producers report; belongs to the loop's thread."""

    def __init__(
        self,
        settings: TransactionSettings,
        topics: TopicTable,
        writer: MessageWriter,
        halves: HalfMessages,
        ops: OpMessages,
        clocks: Clocks,
    ) -> None:
        self.committed: Counter[str] = Counter()  # by topic
        self.rolled_back: Counter[str] = Counter()
        self.refused = 0
        self.latency_seconds: dict[str, Histogram] = {}
        self._settings = settings
        self._topics = topics
        self._writer = writer
        self._halves = halves
        self._ops = ops
        self._clocks = clocks

    def known(self, header: EndTransactionRequestHeader) -> HalfMessage | None:
        """Return the half message at the header's offsets, if its transaction is in progress."""
        half = self._halves.get(header.tran_state_table_offset)
        return half if half is not None and half.physical_offset == header.commit_log_offset else None

    def end(
        self,
        header: EndTransactionRequestHeader,
        record: bytes | None,
        check_topic: TopicCheck | None = None,
    ) -> None:
        """Commit or roll back; `record` is the record at the header's commit log offset.

        The record is not needed if the transaction is known with its message. `check_topic` raises
        CommandError unless the client may end transactions of a topic. Reporting the same outcome again is
        idempotent. Raises CommandError, StoreUnavailable, MessageRejected.
        """
        try:
            self._end(header, record, check_topic)
        except CommandError as error:
            self.refused += 1
            # Most producers send the outcome as a one-way request and get no answer.
            log.debug("transaction outcome refused group=%s cause=%s", header.producer_group, error.remark)
            raise

    def _end(
        self, header: EndTransactionRequestHeader, record: bytes | None, check_topic: TopicCheck | None
    ) -> None:
        stored, named = _half_message(header, record, self.known(header))
        if check_topic is not None:
            check_topic(named.topic)
        outcome = (
            Outcome.COMMITTED
            if header.commit_or_rollback == MessageSysFlag.TRANSACTION_COMMIT
            else Outcome.ROLLED_BACK
        )
        half = self._halves.get(named.first_offset)
        if half is None:
            if not self._may_still_end(named.first_offset, outcome):
                return
        elif not header.from_transaction_check:
            self._check_immunity(half)
        if outcome is Outcome.COMMITTED:
            self._commit(stored, named)
        else:
            self.rolled_back[named.topic] += 1
        self._halves.end(named.first_offset, outcome)
        if half is not None:
            self._ops.add(half.queue_offset)

    def _may_still_end(self, first_offset: int, outcome: Outcome) -> bool:
        """Whether a transaction that is not in progress may end so; False: it already did.

        A transaction that was given up can still be committed. Raises CommandError for another outcome
        than the first one.
        """
        ended = self._halves.outcome_of(first_offset)
        if ended is outcome:
            return False
        if ended is Outcome.GIVEN_UP:
            return outcome is Outcome.COMMITTED
        already = "has ended" if ended is None else f"was {ended.value}"
        raise CommandError(
            ResponseCode.ILLEGAL_OPERATION,
            f"the transaction {already} already, it cannot be {outcome.value} now",
        )

    def _check_immunity(self, half: HalfMessage) -> None:
        """Refuse an outcome after the transaction's immunity time; the producer is checked instead.

        (rejectCommitOrRollback.)
        """
        if half.immune_ms is None:
            return
        immune_ms = max(half.immune_ms, self._settings.transaction_timeout_ms)
        age_ms = self._clocks.steady_ms() - half.since_ms
        if age_ms > immune_ms:
            raise CommandError(
                ResponseCode.ILLEGAL_OPERATION,
                f"the transaction has taken {age_ms} ms, longer than its CHECK_IMMUNITY_TIME_IN_SECONDS "
                f"({immune_ms} ms): its producer group will be checked",
            )

    def _commit(self, stored: StoredMessage, half: HalfMessage) -> None:
        half_message, topic = stored.message, half.topic
        if topic not in self._topics:
            raise CommandError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {topic} of the transaction does not exist any more: create it, or roll back",
            )
        # A copy, because the half message is needed again if the store is unavailable now.
        message = InnerMessage(
            topic,
            half.queue_id,
            half_message.body,
            half_message.properties,
            half_message.flag,
            MessageSysFlag.with_transaction_type(half_message.sys_flag, MessageSysFlag.TRANSACTION_COMMIT),
            half_message.reconsume_times,
            half_message.born_timestamp_ms,
            half_message.born_host,
            half_message.store_host,
            stored.physical_offset,
            half_message.unique_key,
        )
        if _OF_HALF_MESSAGES in message.properties:
            fields = decode_properties(message.properties)
            fields.pop(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, None)
            message.set_properties(fields)
        self._writer.put(message)
        self.committed[topic] += 1
        latency = self.latency_seconds.get(topic)
        if latency is None:
            latency = self.latency_seconds[topic] = Histogram(_LATENCY_BOUNDS_SECONDS)
        latency.observe(max(0, self._clocks.now_ms() - message.born_timestamp_ms) // 1000)


def _half_message(
    header: EndTransactionRequestHeader, record: bytes | None, known: HalfMessage | None
) -> tuple[StoredMessage, HalfMessage]:
    """Return the half message that the header names.

    Raises CommandError if there is none, or if group, queue offset or transaction id differ.
    """
    offset = header.commit_log_offset
    stored = _stored(record, known)
    half = known
    if half is None and stored is not None and stored.message.topic == TRANSACTION_HALF_TOPIC:
        half = HalfMessage.of(stored)
    if stored is None or half is None:
        raise _refused(
            f"no half message begins at offset {offset} of this broker's commit log: it has been removed, or "
            "the transaction is of another broker"
        )
    if half.group != header.producer_group:
        raise _refused(
            f"the half message at {offset} was not sent by producer group {shown(header.producer_group)}"
        )
    if half.queue_offset != header.tran_state_table_offset:
        raise _refused(
            f"the half message at {offset} does not have the queue offset {header.tran_state_table_offset} "
            "(tranStateTableOffset)"
        )
    transaction_id, message = header.transaction_id, stored.message
    if message.unique_key is None:
        message.unique_key = find_property(message.properties, b"UNIQ_KEY")
    if transaction_id and message.unique_key != transaction_id.encode():
        raise _refused(f"the half message at {offset} does not belong to transaction {shown(transaction_id)}")
    return stored, half


def _stored(record: bytes | None, known: HalfMessage | None) -> StoredMessage | None:
    if known is not None and known.message is not None:
        return StoredMessage(
            known.message, known.size, known.physical_offset, known.queue_offset, known.stored_ms
        )
    return None if record is None else read_message(record)


def _refused(remark: str) -> CommandError:
    return CommandError(ResponseCode.SYSTEM_ERROR, remark)
