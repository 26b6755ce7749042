"""A broker that delivers delayed and timed messages in virtual time, without a network."""

from __future__ import annotations

from pathlib import Path

from rmq_broker.delivery.inner_message import InnerMessage
from rmq_broker.store.api import pack_host
from rmq_remoting.message_properties import encode_properties
from tests.support.clock import START_MS, Clock
from tests.support.local_broker import STORE_HOST, LocalBroker

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
BORN_HOST = pack_host("10.1.2.3", 4567)


class DeliveryBroker(LocalBroker):
    """A broker whose timer is loaded."""

    def __init__(self, folder: Path, clock: Clock | None = None, **keys: object) -> None:
        super().__init__(folder, clock, **{"mappedFileSizeConsumeQueue": 6000, **keys})
        self.timers.load()
        self.timed = self.timers.timed
        self.delay_offsets = self.services.delivery.delay_offsets

    async def pass_seconds(self, seconds: float) -> None:
        """Let time pass, and deliver the messages that are due then."""
        self.clock.pass_seconds(seconds)
        await self.delayed.deliver_due()
        await self.timed.deliver_due()


def inner(
    topic: str = "T", body: bytes = b"body", *, queue_id: int = 0, reconsume_times: int = 0, **properties: str
) -> InnerMessage:
    """A message for `MessageWriter.put`."""
    return InnerMessage(
        topic,
        queue_id,
        body,
        encode_properties(properties),
        7,
        0,
        reconsume_times,
        START_MS,
        BORN_HOST,
        STORE_HOST,
    )
