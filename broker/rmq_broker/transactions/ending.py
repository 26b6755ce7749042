"""How transactions end: the half message becomes a message of its own topic, or is done with.

Source: Apache RocketMQ 5.3.3, EndTransactionProcessor. That takes an end for any half message that is still
in the log, so that what has ended twice is there twice; here a transaction ends once.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.daemon.exposition import Histogram
from rmq_remoting.errors import CommandError, shown
from rmq_remoting.message_properties import (
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    decode_properties,
    find_property,
)
from rmq_remoting.sys_flags import MessageSysFlag

from ..delivery.inner_message import StoredMessage, read_message
from ..topics.names import TRANSACTION_HALF_TOPIC
from .half_messages import End, HalfMessage

if TYPE_CHECKING:
    from rmq_remoting.headers.transaction import EndTransactionRequestHeader

    from ..clock import ClockMs
    from ..delivery.message_writer import MessageWriter
    from ..settings.transactions import TransactionSettings
    from ..topics.table import TopicTable
    from .half_messages import HalfMessages
    from .op_messages import OpMessages

log = logging.getLogger("rmq.broker.transactions")

# From sending to the end, in seconds (Apache's buckets of rocketmq_finish_message_latency).
_LATENCY_BOUNDS_SECONDS: Final = (5, 60, 600, 3600, 43_200, 86_400)
_OF_HALF_MESSAGES: Final = PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET.encode()


class Ending:
    """Ends transactions as their producers say; belongs to the loop's thread."""

    def __init__(
        self,
        settings: TransactionSettings,
        topics: TopicTable,
        writer: MessageWriter,
        halves: HalfMessages,
        ops: OpMessages,
        now_ms: ClockMs,
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
        self._now_ms = now_ms

    def known(self, header: EndTransactionRequestHeader) -> HalfMessage | None:
        """The half message that the header means, if it is under way and was not appended again."""
        half = self._halves.get(header.tran_state_table_offset)
        return half if half is not None and half.physical_offset == header.commit_log_offset else None

    def end(self, header: EndTransactionRequestHeader, record: bytes | None) -> None:
        """Commit or roll back; `record` is what begins at the header's offset of the log.

        It is not needed where the message of the known transaction is at hand. To say the same twice is no
        error. Raises CommandError, StoreUnavailable, MessageRejected.
        """
        try:
            self._end(header, record)
        except CommandError as error:
            self.refused += 1
            # Most producers hear nothing of it.
            log.debug("a transaction of group %s does not end: %s", header.producer_group, error.remark)
            raise

    def _end(self, header: EndTransactionRequestHeader, record: bytes | None) -> None:
        stored, meant = _half_message(header, record, self.known(header))
        how = (
            End.COMMITTED
            if header.commit_or_rollback == MessageSysFlag.TRANSACTION_COMMIT
            else End.ROLLED_BACK
        )
        half = self._halves.get(meant.first_offset)
        if half is None:
            if not self._may_still_end(meant.first_offset, how):
                return
        elif not header.from_transaction_check:
            self._check_immunity(half)
        if how is End.COMMITTED:
            self._commit(stored, meant)
        else:
            self.rolled_back[meant.topic] += 1
        self._halves.end(meant.first_offset, how)
        if half is not None:
            self._ops.add(half.queue_offset)

    def _may_still_end(self, first_offset: int, how: End) -> bool:
        """Whether a transaction that is not under way may end so; False: it did already. Raises CommandError.

        What was given up is committed all the same if its producer says so at last.
        """
        ended = self._halves.ending_of(first_offset)
        if ended is how:
            return False
        if ended is End.GIVEN_UP:
            return how is End.COMMITTED
        already = "has ended" if ended is None else f"was {ended.value}"
        raise CommandError(
            ResponseCode.ILLEGAL_OPERATION, f"the transaction {already} already, it cannot be {how.value} now"
        )

    def _check_immunity(self, half: HalfMessage) -> None:
        """Whoever says how long he does not want to be asked is asked afterwards (rejectCommitOrRollback)."""
        if half.immune_ms is None:
            return
        immune_ms = max(half.immune_ms, self._settings.transaction_timeout_ms)
        age_ms = self._now_ms() - half.since_ms
        if age_ms > immune_ms:
            raise CommandError(
                ResponseCode.ILLEGAL_OPERATION,
                f"the transaction has taken {age_ms} ms, longer than its CHECK_IMMUNITY_TIME_IN_SECONDS "
                f"({immune_ms} ms): its producer group will be asked",
            )

    def _commit(self, stored: StoredMessage, half: HalfMessage) -> None:
        half_message, topic = stored.message, half.topic
        if topic not in self._topics:
            raise CommandError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {topic} of the transaction does not exist any more: create it, or roll back",
            )
        # One of its own: where it cannot be stored now, the half message is needed again.
        message = replace(
            half_message,
            topic=topic,
            queue_id=half.queue_id,
            sys_flag=MessageSysFlag.with_transaction_type(
                half_message.sys_flag, MessageSysFlag.TRANSACTION_COMMIT
            ),
            prepared_transaction_offset=stored.physical_offset,
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
        latency.observe(max(0, self._now_ms() - message.born_timestamp_ms) // 1000)


def _half_message(
    header: EndTransactionRequestHeader, record: bytes | None, known: HalfMessage | None
) -> tuple[StoredMessage, HalfMessage]:
    """The half message that the header means. Raises CommandError for none, or one of another group."""
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
