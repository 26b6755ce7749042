"""Transaction ids: all that a proxy needs to end a transaction, so that no proxy has to remember one.

`message id:commit log offset:offset in the queue of half messages:broker`. Apache RocketMQ 5.3.3's proxy has
the message id alone as transaction id. It keeps the rest in memory for 30 s, so its transactions do not
outlive a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmq_remoting.errors import shown
from rmq_remoting.integer_bounds import INT64_MAX

from .protocol.definition_pb2 import Code
from .statuses import Refusal

_SEPARATOR: Final = ":"
_PARTS: Final = 4
_MAX_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class TransactionId:
    """The id of a transaction, and the position of its half message."""

    message_id: str
    commit_log_offset: int
    queue_offset: int
    broker_name: str

    def __str__(self) -> str:
        parts = (self.message_id, str(self.commit_log_offset), str(self.queue_offset), self.broker_name)
        return _SEPARATOR.join(parts)

    @classmethod
    def parse(cls, text: str) -> TransactionId:
        """Parse an id. Raises Refusal."""
        if not text.strip():
            raise Refusal(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        parts = text.rsplit(_SEPARATOR, _PARTS - 1)
        if len(parts) != _PARTS or not (_is_offset(parts[1]) and _is_offset(parts[2]) and parts[3]):
            raise Refusal(
                Code.INVALID_TRANSACTION_ID,
                f"the transaction id {shown(text)} is not one that a send was answered with",
            )
        return cls(parts[0], int(parts[1]), int(parts[2]), parts[3])


def _is_offset(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) <= INT64_MAX
