"""Walks through the queues of a topic: generators that yield whenever they must not go on at once."""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import Final

from ..store.api import ColdRead, GetResult


class _Stop(Enum):
    PAUSE = "the loop serves other requests before the walk goes on"


# Yielded after each `ITEMS_PER_SLICE` queues.
PAUSE: Final = _Stop.PAUSE

# The reason why a walk stops. Behind a read that needs the disk it is sent the result (None: read refused).
Stop = ColdRead | _Stop
Walk = Generator[Stop, GetResult | None, None]
# The part of a walk that reads one queue.
QueueRead = Generator[Stop, GetResult | None, GetResult | None]
