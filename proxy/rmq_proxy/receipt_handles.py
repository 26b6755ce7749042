"""Receipt handles of clients: a broker's receipt with the message's commit log offset as the ninth part.

The handle holds all that an acknowledgement needs. So it is valid after a restart, and for the other proxies
of the cluster, Apache's included (Apache RocketMQ 5.3.3, ReceiptHandle).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmq_remoting.integer_bounds import INT64_MAX
from rmq_remoting.pop_receipt import Receipt, ReceiptError, real_topic

from .protocol.definition_pb2 import Code
from .statuses import Refusal

_SEPARATOR: Final = " "
_OFFSET_PART: Final = 8
_MAX_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class ReceiptHandle:
    """A handle: the receipt, whose queue and offset are known, and the commit log offset (-1: unknown)."""

    receipt: Receipt
    queue_id: int
    queue_offset: int
    commit_log_offset: int

    @classmethod
    def parse(cls, text: str) -> ReceiptHandle:
        """Parse a handle. Raises Refusal."""
        try:
            receipt = Receipt.parse(text)
        except ReceiptError as error:
            raise Refusal(Code.INVALID_RECEIPT_HANDLE, str(error)) from error
        if receipt.queue_id is None or receipt.queue_offset is None:
            raise Refusal(Code.INVALID_RECEIPT_HANDLE, "the receipt handle has no queue or no queue offset")
        parts = text.split(_SEPARATOR)
        offset = parts[_OFFSET_PART] if len(parts) > _OFFSET_PART else ""
        is_known = offset.isascii() and offset.isdigit() and len(offset) <= _MAX_DIGITS
        commit_log_offset = int(offset) if is_known and int(offset) <= INT64_MAX else -1
        return cls(receipt, receipt.queue_id, receipt.queue_offset, commit_log_offset)

    def __str__(self) -> str:
        return f"{self.receipt}{_SEPARATOR}{self.commit_log_offset}"

    @property
    def place(self) -> tuple[str, str, int, int]:
        """What stays the same when the handle is renewed: broker, kind of topic, queue and offset."""
        return (self.receipt.broker_name, self.receipt.kind, self.queue_id, self.queue_offset)

    def topic(self, topic: str, group: str) -> str:
        """Return the topic that the message was popped from: `topic`, or a retry topic of the group."""
        return real_topic(topic, group, self.receipt.kind)

    def check_not_expired(self, now_ms: int) -> None:
        """Refuse a handle whose message has become visible again."""
        if self.receipt.revive_time <= now_ms:
            raise Refusal(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
