"""Messages of a broker, stored and read past the network. All functions run on the broker's loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rmq_broker.broker import Broker
from rmq_broker.delivery.inner_message import InnerMessage
from rmq_broker.store.api import MessageStore
from rmq_broker.topics.names import SCHEDULE_TOPIC, topic_name_problem
from rmq_broker.topics.permissions import READ_WRITE
from rmq_client import Message, MessageExt
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_ids import UniqueKeyGenerator
from rmq_remoting.message_properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_TOPIC,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    properties_to_string,
)

_READ_AT_ONCE: Final = 32
_ANNOUNCED_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.002

# The next offset to be read, by topic and queue.
Positions = dict[tuple[str, int], int]


def create_topic(broker: Broker, topic: str, queues: int) -> None:
    """Create a topic, or change its number of queues. The name server gets to know it some ms later.

    Raises ValueError for a name that no broker accepts, and without queues.
    """
    problem = topic_name_problem(topic)
    if problem is not None:
        raise ValueError(problem)
    if queues < 1:
        raise ValueError(f"queues={queues} of topic {topic!r}: must be at least 1")
    broker.services.topics.table.update(
        TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=READ_WRITE)
    )


async def wait_announced(broker: Broker) -> None:
    """Wait until the name server knows all topics. Raises RuntimeError if it does not get to know them.

    A registration under way while time is advanced fails by its time-out, and is repeated a second later.
    """
    registrar, deadline = broker.registrar, time.monotonic() + _ANNOUNCED_SECONDS
    version = registrar.topics.version
    while not all(link.is_registered and link.announced_version >= version for link in registrar.links):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the name server does not know the new topics after {_ANNOUNCED_SECONDS:g} s")
        await asyncio.sleep(_POLL_SECONDS)


def store_message(
    broker: Broker, message: Message, queue_id: int, unique_keys: UniqueKeyGenerator, now_ms: int
) -> tuple[str, int]:
    """Store a message as if a producer had sent it; return its id and its offset in the queue.

    The offset of a delayed message is the one in the broker's internal queue.
    """
    properties = {PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: unique_keys.next_key(), **message.properties}
    host = broker.address.store_host
    inner = InnerMessage(
        message.topic,
        queue_id,
        message.body,
        properties_to_string(properties).encode(),
        flag=message.flag,
        sys_flag=0,
        reconsume_times=0,
        born_timestamp_ms=now_ms,
        born_host=host,
        store_host=host,
    )
    level = int(properties.get(PROPERTY_DELAY_TIME_LEVEL, 0))
    written = broker.services.delivery.writer.put(inner, level)
    return properties[PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX], written.queue_offset


def queues_of(broker: Broker, topic: str) -> int:
    """Return the number of a topic's queues; 0 for an unknown topic."""
    config = broker.services.topics.table.get(topic)
    return 0 if config is None else max(config.read_queue_nums, config.write_queue_nums)


def application_topics(broker: Broker) -> list[str]:
    """Return the topics of applications, with those of retries and dead letters."""
    table = broker.services.topics.table
    return [config.topic_name for config in table.configs() if config.topic_name not in table.system_topics]


def ends_of(broker: Broker, topics: Iterable[str]) -> Positions:
    """Return the ends of all queues of these topics."""
    store = broker.services.storage.store
    return {
        (topic, queue_id): store.max_offset(topic, queue_id)
        for topic in topics
        for queue_id in range(queues_of(broker, topic))
    }


def messages_of(broker: Broker, topic: str, after: Mapping[tuple[str, int], int]) -> list[MessageExt]:
    """Return the messages of a topic from the positions `after` on, in the order of their storage."""
    store, found = broker.services.storage.store, list[MessageExt]()
    for queue_id in range(queues_of(broker, topic)):
        found += read_queue(store, topic, queue_id, after.get((topic, queue_id), 0))
    return sorted(found, key=lambda message: message.physical_offset)


def read_queue(store: MessageStore, topic: str, queue_id: int, offset: int = 0) -> list[MessageExt]:
    """Return the messages of a queue from an offset on. The queue need not exist."""
    found: list[MessageExt] = []
    offset = max(offset, store.min_offset(topic, queue_id))
    while True:
        result = store.get(topic, queue_id, offset, _READ_AT_ONCE, None)
        if not result.body:
            return found
        found += decode_messages(result.body, check_crc=True)
        offset = result.next_offset


def delayed_messages(broker: Broker, topic: str) -> Iterator[tuple[MessageExt, int]]:
    """Yield the messages of a topic that wait for their delay level, and when they are due in ms."""
    services = broker.services
    levels, store = services.delivery.writer.levels, services.storage.store
    for level, (offset, _) in services.delivery.delayed.positions().items():
        for message in read_queue(store, SCHEDULE_TOPIC, level - 1, offset):
            if message.properties.get(PROPERTY_REAL_TOPIC) == topic:
                yield message, message.store_timestamp + levels.delay_ms(level)
