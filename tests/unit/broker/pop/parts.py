"""A broker whose messages are popped, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmq_broker.pop.check_point import QueueKey
from rmq_broker.pop.peeking import Peek
from rmq_broker.pop.popping import Pop
from rmq_broker.store.api import ColdRead
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.pop_receipt import Receipt, kind_of
from tests.support.clock import Clock
from tests.support.local_broker import LocalBroker

GROUP = "CG"


class PopBroker(LocalBroker):
    """A broker with the topic T, which has two queues, and the group CG."""

    def __init__(self, folder: Path, clock: Clock | None = None, **keys: object) -> None:
        super().__init__(folder, clock, **{"popFromRetryProbability": 0, **keys})
        self.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        self.groups.update(SubscriptionGroupConfig(group_name=GROUP))

    def pop(
        self,
        *,
        queue_id: int = 0,
        most: int = 32,
        invisible_ms: int = 60_000,
        in_order: bool = False,
        attempt_id: str | None = None,
        init_mode: int = 0,
        tags_codes: frozenset[int] | None = None,
    ) -> Pop:
        """Pop the messages that are there."""
        pop = Pop(
            "T",
            GROUP,
            queue_id,
            most,
            invisible_ms,
            init_mode,
            in_order,
            attempt_id,
            lambda topic, queue, offset, count: self.store.get_now(topic, queue, offset, count, tags_codes),
        )
        walk = self.pops.popping.walk(pop)
        try:
            stop = next(walk)
            while True:
                assert isinstance(stop, ColdRead)
                stop = walk.send(self.store.finish(stop.run()))
        except StopIteration:
            return pop

    def ack(self, pop: Pop, *offsets: int, queue_id: int = 0) -> None:
        """Acknowledge messages of a pop."""
        self.pops.acknowledging.ack(QueueKey("T", GROUP, queue_id), receipt_of(pop), offsets)

    async def pass_seconds(self, seconds: float) -> None:
        """Let time pass, and redeliver the messages that are due then."""
        self.clock.pass_seconds(seconds)
        await self.pops.revival.revive_due()


@contextmanager
def pop_broker(folder: Path, clock: Clock | None = None, **keys: object) -> Iterator[PopBroker]:
    """A PopBroker that is closed at the end, as after a crash."""
    broker = PopBroker(folder, clock, **keys)
    try:
        yield broker
    finally:
        broker.close()


def messages_of(pop: Pop | Peek) -> list[MessageExt]:
    """The messages of a pop or a peek."""
    return decode_messages(b"".join(pop.bodies), check_crc=True)


def bodies_of(pop: Pop) -> list[bytes]:
    """The bodies of the messages of a pop."""
    return [message.body for message in messages_of(pop)]


def receipt_of(pop: Pop) -> Receipt:
    """The receipt of the first queue that was popped."""
    kind, _, start = pop.infos.start_offset_info.split(";")[0].split(" ")
    assert kind == kind_of(pop.topic)
    return Receipt(int(start), pop.pop_time, pop.invisible_time_ms, pop.revive_queue_id, kind, "broker-a")
