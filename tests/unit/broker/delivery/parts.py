"""The parts that redeliver messages and deliver them later, on a store of their own, in virtual time."""

from __future__ import annotations

from pathlib import Path

from rmq_broker.delivery.delay_offsets import DelayOffsets
from rmq_broker.delivery.delayed_messages import DelayedMessages
from rmq_broker.delivery.inner_message import InnerMessage
from rmq_broker.delivery.message_writer import MessageWriter
from rmq_broker.delivery.retries import Retries
from rmq_broker.groups.table import SubscriptionGroupTable
from rmq_broker.sending.redirection import Redirection
from rmq_broker.settings.broker import BrokerSettings
from rmq_broker.statistics.broker_statistics import BrokerStatistics
from rmq_broker.store.api import MessageStore, pack_host
from rmq_broker.timers.intake import build_timer_intake
from rmq_broker.timers.service import TimerService
from rmq_broker.topics.table import TopicTable
from rmq_broker.transactions.half_messages import HalfMessages
from rmq_broker.transactions.preparing import Preparing
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_properties import encode_properties
from tests.unit.broker.parts import START_MS, Clock, broker_settings

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
BORN_HOST = pack_host("10.1.2.3", 4567)
STORE_HOST = pack_host("10.0.0.1", 10911)


class Delivery:
    """A store and the parts that write into it; `clock` is the time."""

    def __init__(self, folder: Path, clock: Clock | None = None, **keys: object) -> None:
        self.clock = clock or Clock()
        self.settings: BrokerSettings = broker_settings(
            **{
                "storePathRootDir": folder,
                "mappedFileSizeCommitLog": 1 << 20,
                "mappedFileSizeConsumeQueue": 6000,
                **keys,
            }
        )
        self.topics = TopicTable(self.settings, "DefaultCluster", "broker-a", self.clock)
        self.groups = SubscriptionGroupTable(self.settings, self.clock)
        self.statistics = BrokerStatistics(self.topics.system_topics, self.clock)
        self.store = MessageStore(
            self.settings,
            self.settings,
            self.settings,
            lambda: self.clock.now_ms / 1000,
            is_batch=self.topics.stores_batches,
        )
        self.store.open()
        levels = self.settings.delay_levels
        intake = build_timer_intake(self.settings, self.settings, self.store, self.clock)
        self.writer = MessageWriter(self.store, self.statistics, levels, intake.admission)
        # As POP would say it, in a test about that.
        self.held_from_ms: int | None = None
        self.timers = TimerService(
            self.settings,
            intake,
            self.topics,
            self.store,
            self.writer,
            lambda: self.held_from_ms,
            self.clock,
        )
        self.timers.load()
        self.timed = self.timers.timed
        self.locked: set[str] = set()
        self.retries = Retries(self.groups, self.topics, levels, self.statistics, self.locked.__contains__)
        preparing = Preparing(self.settings, self.writer, HalfMessages(), self.clock)
        self.redirection = Redirection(self.writer, self.retries, preparing)
        self.offsets = DelayOffsets(self.clock)
        self.delayed = DelayedMessages(self.store, self.writer, self.offsets, self.statistics, self.clock)

    async def pass_seconds(self, seconds: float) -> None:
        """Let time pass, and deliver the messages that are due then."""
        self.clock.pass_seconds(seconds)
        await self.delayed.deliver_due()
        await self.timed.deliver_due()

    def stored(self, topic: str, queue_id: int = 0) -> list[MessageExt]:
        """Return the messages of a queue, which need not exist."""
        found: list[MessageExt] = []
        while True:
            result = self.store.get(topic, queue_id, len(found), 32, None)
            if not result.body:
                return found
            found += decode_messages(result.body, check_crc=True)

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        """Return the bodies of the messages of a queue."""
        return [message.body for message in self.stored(topic, queue_id)]


def redirection_of(
    settings: BrokerSettings, topics: TopicTable, store: MessageStore, statistics: BrokerStatistics
) -> Redirection:
    """The redirection of a SendProcessor, without a consumer group."""
    levels = settings.delay_levels
    groups = SubscriptionGroupTable(settings, Clock())
    clock = Clock()
    intake = build_timer_intake(settings, settings, store, clock)
    writer = MessageWriter(store, statistics, levels, intake.admission)
    preparing = Preparing(settings, writer, HalfMessages(), clock)
    return Redirection(writer, Retries(groups, topics, levels, statistics), preparing)


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
