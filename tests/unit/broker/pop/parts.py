"""POP of a broker in virtual time: a store with files, and all that belongs to POP, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmq_broker.delivery.arrivals import Arrivals
from rmq_broker.delivery.message_writer import MessageWriter
from rmq_broker.groups.table import SubscriptionGroupTable
from rmq_broker.offsets.table import ConsumerOffsetTable
from rmq_broker.pop.check_point import QueueKey
from rmq_broker.pop.peeking import Peek
from rmq_broker.pop.popping import Pop
from rmq_broker.pop.service import PopDependencies, PopService
from rmq_broker.settings.broker import BrokerSettings
from rmq_broker.statistics.broker_statistics import BrokerStatistics
from rmq_broker.store.api import ColdRead, DelayLevels, MessageStore, RecordTemplate, pack_host
from rmq_broker.timers.intake import build_timer_intake
from rmq_broker.topics.table import TopicTable
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.pop_receipt import Receipt, kind_of
from tests.unit.broker.parts import Clock, broker_settings

HOST = pack_host("10.0.0.1", 10911)
GROUP = "CG"


class PopBroker:
    """The topic T with two queues, and the group CG."""

    def __init__(self, folder: Path, clock: Clock | None = None, **keys: object) -> None:
        self.folder = folder
        self.clock = clock or Clock()
        self.settings: BrokerSettings = broker_settings(
            **{
                "storePathRootDir": folder,
                "mappedFileSizeCommitLog": 1 << 20,
                "mappedFileSizeConsumeQueue": 20_000,
                "popFromRetryProbability": 0,
                **keys,
            }
        )
        settings = self.settings
        self.topics = TopicTable(settings, settings.broker_cluster_name, "broker-a", self.clock)
        self.groups = SubscriptionGroupTable(settings, self.clock)
        self.offsets = ConsumerOffsetTable(self.clock)
        self.statistics = BrokerStatistics(self.topics.system_topics, self.clock)
        self.store = MessageStore(settings, settings, settings, lambda: self.clock() / 1000)
        self.store.open()
        self.timers = build_timer_intake(settings, settings, self.store, self.clock)
        dependencies = PopDependencies(
            self.topics,
            self.groups,
            self.offsets,
            self.store,
            self.statistics,
            MessageWriter(self.store, self.statistics, DelayLevels.parse("1s 5s"), self.timers.admission),
            Arrivals(self.store.appender, lambda queue: None),
            self.timers.entering.announce,
        )
        self.pops = PopService(settings, dependencies, HOST, self.clock)
        self.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        self.groups.update(SubscriptionGroupConfig(group_name=GROUP))

    def put(self, count: int = 1, queue_id: int = 0, topic: str = "T") -> None:
        """Store messages with their number in the queue as body."""
        queue = self.store.queues.get_or_create(topic, queue_id)
        template = RecordTemplate(
            topic, queue_id, flag=0, sys_flag=0, reconsume_times=0, born_host_bytes=8, store_host=HOST
        )
        for _ in range(count):
            body = b"%d" % queue.next_offset
            self.store.put(
                queue, template, body, b"", tags_code=0, born_timestamp_ms=self.clock(), born_host=HOST
            )

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
            cold = next(walk)
            while True:
                assert isinstance(cold, ColdRead)
                cold = walk.send(self.store.reader.finish(cold.run()))
        except StopIteration:
            return pop

    def ack(self, pop: Pop, *offsets: int, queue_id: int = 0) -> None:
        """Acknowledge messages of a pop."""
        self.pops.acknowledging.ack(QueueKey("T", GROUP, queue_id), receipt_of(pop), offsets)

    async def pass_seconds(self, seconds: float) -> None:
        """Let time pass, and redeliver the messages that are due then."""
        self.clock.pass_seconds(seconds)
        await self.pops.revival.revive_due()

    def close(self) -> None:
        self.store.close()


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
