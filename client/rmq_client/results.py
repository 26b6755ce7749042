"""Results of sends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rmq_remoting.message_queue import MessageQueue


class SendStatus(Enum):
    """Durability of a stored message; SEND_OK: as durable as the broker is configured to make it.

    The other statuses are not errors: the message is in the broker's log and consumers will get it, but it
    may not survive the loss of that broker (Apache RocketMQ 5.3.3, SendStatus).
    """

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(slots=True)
class SendResult:
    """Where a message is stored.

    `msg_id` is the id that this client gave the message, and that its consumers see. `offset_msg_id` contains
    the broker's address and the offset in its log; `queue_offset` is the offset in the queue. `region_id` is
    the broker's region, for hooks, if the broker accepts traces. `recall_handle`: handle of a delayed message
    for `Producer.recall`.
    """

    status: SendStatus
    msg_id: str
    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    broker_address: str = ""
    region_id: str | None = None
    recall_handle: str | None = None
