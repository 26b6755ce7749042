"""Routes of topics: the queues to send to, the brokers to receive from, and the addresses of masters.

Queues are in the order of Apache RocketMQ 5.3.3 (MessageQueueSelector), which decides the queue of a message
group. All proxies of a cluster must agree on it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from rmq_remoting.bodies.route import MASTER_BROKER_ID, BrokerData, QueueData, TopicRouteData
from rmq_remoting.bodies.static_topic import TopicQueueMappingInfo
from rmq_remoting.java_hash import string_hash_code
from rmq_remoting.message_queue import MessageQueue

PERM_READ: Final = 4
PERM_WRITE: Final = 2
_MASK_64: Final = 2**64 - 1


def _random_start() -> Iterator[int]:
    return count(random.randrange(1 << 16))


@dataclass(frozen=True, slots=True, eq=False)
class TopicRoute:
    """The route of one topic, as one name server knows it.

    `write_queues` and `readable_brokers` are those that this proxy sends to and receives from. In LOCAL mode
    they are on its own broker.
    """

    topic: str
    queue_datas: tuple[QueueData, ...]
    brokers: Mapping[str, BrokerData]
    write_queues: tuple[MessageQueue, ...]
    readable_brokers: tuple[str, ...]
    order_topic_conf: str | None = None
    static_mapping: Mapping[str, TopicQueueMappingInfo] | None = None
    _turn: Iterator[int] = field(default_factory=_random_start, repr=False)

    @classmethod
    def of(cls, topic: str, data: TopicRouteData, own_broker: str | None = None) -> TopicRoute:
        """Return the route of a name server's answer; `own_broker`: the broker of a proxy in LOCAL mode."""
        brokers = {broker.broker_name: broker for broker in data.broker_datas}
        queue_datas = tuple(data.queue_datas)
        write_queues = {
            queue
            for queue in _write_queues(topic, data)
            if own_broker in (None, queue.broker_name) and _master(brokers, queue.broker_name)
        }
        readable = {
            queues.broker_name
            for queues in queue_datas
            if queues.perm & PERM_READ
            and queues.read_queue_nums > 0
            and own_broker in (None, queues.broker_name)
            and queues.broker_name in brokers
        }
        return cls(
            topic,
            queue_datas,
            brokers,
            tuple(sorted(write_queues)),
            tuple(sorted(readable)),
            data.order_topic_conf,
            data.topic_queue_mapping_by_broker,
        )

    def queue_for(self, message_group: str) -> MessageQueue | None:
        """Return the queue of a message group; without a group, the queues in turn. None without a queue."""
        queues = self.write_queues
        if not queues:
            return None
        if message_group:
            return queues[consistent_hash(string_hash_code(message_group), len(queues))]
        return queues[next(self._turn) % len(queues)]

    def broker_to_receive_from(self, wanted: str) -> str | None:
        """Return the wanted broker if it is readable, else one of the others in turn."""
        brokers = self.readable_brokers
        if wanted in brokers:
            return wanted
        return brokers[next(self._turn) % len(brokers)] if brokers else None

    def address(self, broker_name: str) -> str | None:
        """Return the address of a broker's master, or without one of its slave with the lowest id."""
        broker = self.brokers.get(broker_name)
        if broker is None or not broker.broker_addrs:
            return None
        addresses = broker.broker_addrs
        return addresses.get(MASTER_BROKER_ID) or addresses[min(addresses)]

    def master(self, broker_name: str) -> str | None:
        """Return the address of a broker's master."""
        return _master(self.brokers, broker_name)

    def any_address(self) -> str | None:
        """Return the address of one of the brokers, chosen at random."""
        addresses = [address for name in self.brokers if (address := self.address(name)) is not None]
        return random.choice(addresses) if addresses else None

    def has(self, address: str) -> bool:
        """Whether a broker of the route has this address."""
        return any(address in broker.broker_addrs.values() for broker in self.brokers.values())


def consistent_hash(value: int, buckets: int) -> int:
    """Return the bucket of a number, of 0 to `buckets` - 1.

    The numbers are those of Guava's Hashing.consistentHash, which Apache's proxy uses: one more bucket moves
    only its share of the values.
    """
    state, candidate = value & _MASK_64, 0
    while True:
        state = (2862933555777941757 * state + 1) & _MASK_64
        high = state >> 33
        following = int((candidate + 1) / ((high + 1) / float(1 << 31)))
        if following >= buckets:
            return candidate
        candidate = following


def _write_queues(topic: str, data: TopicRouteData) -> Iterator[MessageQueue]:
    if data.order_topic_conf:
        for item in data.order_topic_conf.split(";"):
            broker_name, _, number = item.strip().partition(":")
            if broker_name and number.isdigit():
                for queue_id in range(int(number)):
                    yield MessageQueue(topic, broker_name, queue_id)
        return
    for queues in data.queue_datas:
        if queues.perm & PERM_WRITE:
            for queue_id in range(queues.write_queue_nums):
                yield MessageQueue(topic, queues.broker_name, queue_id)


def _master(brokers: Mapping[str, BrokerData], broker_name: str) -> str | None:
    broker = brokers.get(broker_name)
    return None if broker is None else broker.broker_addrs.get(MASTER_BROKER_ID)
