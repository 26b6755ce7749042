"""Due work of a broker: delayed and timed messages, and popped ones whose invisible time has ended."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from rmq_broker.broker import Broker
from rmq_broker.topics.names import SCHEDULE_TOPIC
from rmq_remoting.message_codec import decode_messages

# Something may keep a message from its topic, such as a topic that was deleted meanwhile.
_LONGEST_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.002


async def wait_delivered(broker: Broker, now_ms: int) -> None:
    """Wait until everything that is due at a time is in its topic, some seconds at most."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    while _is_due(broker, now_ms) and time.monotonic() < deadline:  # noqa: ASYNC110  # nothing signals it
        await asyncio.sleep(_POLL_SECONDS)


def _is_due(broker: Broker, now_ms: int) -> bool:
    services = broker.services
    revive_ms = services.pops.in_flight.earliest_revive_time
    return (
        _is_level_due(broker, now_ms)
        or services.timers.read_behind_ms() > 0
        or (revive_ms is not None and revive_ms <= now_ms)
    )


def _is_level_due(broker: Broker, now_ms: int) -> bool:
    """Whether the first message of a delay level is due: the others of the level follow it."""
    services = broker.services
    levels, store = services.delivery.writer.levels, services.storage.store
    for level, (offset, end) in services.delivery.delayed.positions().items():
        if offset < end:
            result = store.get(SCHEDULE_TOPIC, level - 1, offset, 1, None)
            for message in decode_messages(result.body):
                if message.store_timestamp + levels.delay_ms(level) <= now_ms:
                    return True
    return False
