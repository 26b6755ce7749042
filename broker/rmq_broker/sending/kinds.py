"""The kinds of sends: each says where the messages of a send are stored, and in which form."""

from __future__ import annotations

from enum import Enum


class SendKind(Enum):
    """How the messages of one send request are stored.

    The first three are stored in the queue that the producer names. The others are stored in another topic
    first, or for good (`redirection.py`).
    """

    PLAIN = "plain"
    """One message, as one record."""

    BATCH = "batch"
    """The messages of a batch, as one record each."""

    UNIT = "unit"
    """The messages of a batch, as one record that clients take apart: topics with `queue.type=BatchCQ`."""

    DELAYED = "delayed"
    """One message with a delay level (property DELAY), in the queue of its level."""

    TIMED = "timed"
    """One message with a delivery time (properties TIMER_...), in the queue of timed messages."""

    HALF = "half"
    """One message of a transaction, in the queue of half messages until the transaction ends."""

    DEAD_LETTER = "dead letter"
    """One message that a consumer group has failed to consume too often, in the group's dead letter topic."""
