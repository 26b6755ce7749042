"""Receipts of popped messages."""

from __future__ import annotations

from dataclasses import dataclass

from rmq_remoting.pop_receipt import Receipt


@dataclass(frozen=True, slots=True)
class PopHandle:
    """What a receipt says of its message, for the requests that settle it. `topic` may be a retry topic."""

    topic: str
    queue_id: int
    offset: int
    receipt: Receipt
