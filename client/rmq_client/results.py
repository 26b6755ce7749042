"""What becomes of a send."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rmq_remoting.message_queue import MessageQueue


class SendStatus(Enum):
    """How safe a message is that a broker has taken; SEND_OK: as safe as the broker is configured to make it.

    The others are no errors: the message is in the broker's log and consumers will get it, but it might not
    survive the loss of that broker (Apache RocketMQ 5.3.3, SendStatus).
    """

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(slots=True)
class SendResult:
    """Where a message is.

    `msg_id` is the id that this client gave the message, and that its consumers see; `offset_msg_id` tells
    the broker's address and the place in its log, `queue_offset` the place in the queue. `region_id` is the
    broker's region, told to hooks where the broker wants traces. `recall_handle`: what a message that waits
    for its time can be taken back with (`Producer.recall`).
    """

    status: SendStatus
    msg_id: str
    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    broker_address: str = ""
    region_id: str | None = None
    recall_handle: str | None = None
