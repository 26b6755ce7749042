"""Op messages: the durable record of finished half messages, in `RMQ_SYS_TRANS_OP_HALF_TOPIC`.

One op message names many half messages by their queue offsets (Apache RocketMQ 5.3.3,
TransactionalMessageServiceImpl.batchSendOpMessage). Op messages are read only at a start.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.demand import Demand

from ..delivery.inner_message import InnerMessage
from ..store.api import MessageRejected, StoreUnavailable
from ..topics.names import TRANSACTION_OP_TOPIC

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..delivery.message_writer import MessageWriter
    from ..settings.transactions import TransactionSettings
    from ..store.api import MessageStore

log = logging.getLogger("rmq.broker.transactions")

OP_QUEUE_ID: Final = 0
_REMOVE: Final = b"TAGS\x01d\x02"
_SEPARATOR: Final = b","


class OpMessages:
    """Collects the offsets of finished half messages and writes them; belongs to the loop's thread."""

    def __init__(
        self,
        settings: TransactionSettings,
        writer: MessageWriter,
        store: MessageStore,
        store_host: bytes,
        now_ms: ClockMs,
    ) -> None:
        self._settings = settings
        self._writer = writer
        self._store = store
        self._store_host = store_host
        self._now_ms = now_ms
        self._unwritten: deque[bytes] = deque()
        self.demand = Demand(self._has_unwritten)  # of the task that calls `write`
        self._unwritten_bytes = 0
        self._is_failing = False
        # The op messages that may still be needed: their offsets, and the highest offset that each one names.
        self._written: deque[tuple[int, int]] = deque()

    def clear(self) -> None:
        """Forget the collected offsets and the written messages."""
        self._unwritten.clear()
        self._unwritten_bytes = 0
        self._written.clear()

    def period_seconds(self) -> float:
        """Return the pause between two calls of `write`, by the current setting."""
        return self._settings.transaction_op_batch_interval_ms / 1000

    def add(self, half_offset: int) -> None:
        """Note a half message as finished: its transaction ended, or it was appended again."""
        text = b"%d" % half_offset
        self._unwritten.append(text)
        self.demand.arise()
        self._unwritten_bytes += len(text) + len(_SEPARATOR)
        if self._unwritten_bytes > self._settings.transaction_op_message_max_bytes:
            self.write()

    def _has_unwritten(self) -> bool:
        return bool(self._unwritten)

    def write(self) -> None:
        """Write the collected offsets; those that the store does not accept are retried at the next call."""
        while self._unwritten:
            offsets = self._next_batch()
            body = _SEPARATOR.join([*offsets, b""])
            message = InnerMessage(
                TRANSACTION_OP_TOPIC,
                OP_QUEUE_ID,
                body,
                _REMOVE,
                0,
                0,
                0,
                self._now_ms(),
                self._store_host,
                self._store_host,
            )
            try:
                written_op = self._writer.put(message)
            except (StoreUnavailable, MessageRejected) as error:
                if not self._is_failing:
                    log.warning("writing op messages of transactions failed, will retry cause=%s", error)
                self._is_failing = True
                return
            self._is_failing = False
            for _ in offsets:
                self._unwritten.popleft()
            self._unwritten_bytes -= len(body)
            self.read(written_op.queue_offset, map(int, offsets))

    def _next_batch(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        for text in self._unwritten:
            batch.append(text)
            size += len(text) + len(_SEPARATOR)
            if size >= self._settings.transaction_op_message_max_bytes:
                break
        return batch

    def read(self, op_offset: int, half_offsets: Iterable[int]) -> None:
        """Note an op message that was written, or found at a start."""
        self._written.append((op_offset, max(half_offsets, default=-1)))

    def done_before(self, half_offset: int) -> int:
        """Return the first op message that is still needed if half messages before the offset are not."""
        written = self._written
        while written and written[0][1] < half_offset:
            written.popleft()
        if written:
            return written[0][0]
        queue = self._store.queues.get(TRANSACTION_OP_TOPIC, OP_QUEUE_ID)
        return 0 if queue is None else queue.next_offset


def half_offsets_in(body: bytes) -> list[int]:
    """Return the offsets that an op message names; anything else in its body is skipped."""
    return [int(text) for text in body.split(_SEPARATOR) if text.isdigit() and len(text) < 19]
