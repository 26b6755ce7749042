"""The progress of a consumer group: messages that it has left, by the broker and by its members.

A member commits its offsets every few seconds. The members are therefore asked (request 221), so that a test
does not wait for the commit.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from rmq_broker.broker import Broker
from rmq_broker.pop.check_point import QueueKey
from rmq_broker.topics.names import RETRY_PREFIX
from rmq_remoting.bodies.offsets import GetConsumerStatusBody
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.errors import RemotingError
from rmq_remoting.headers.consumer import GetConsumerStatusRequestHeader

from .messages import application_topics, delayed_messages, queues_of

_MEMBER_SECONDS: Final = 1.0
_READ_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class Remaining:
    """The messages that a group has not consumed yet. All counts are of messages."""

    members: int
    topics: tuple[str, ...]
    by_topic: dict[str, int]
    waiting_for_retry: int
    in_flight: int

    @property
    def is_nothing(self) -> bool:
        """Whether the group is known, and has consumed everything."""
        return bool(self.topics) and not any(self.by_topic.values()) and not self.waiting_for_retry

    def report(self, group: str) -> str:
        """Describe the rest."""
        if not self.topics:
            return f"  the broker does not know group {group!r}: no consumer has joined it yet"
        lines = [f"  {self.members} members; topics: {', '.join(self.topics)}"]
        lines += [f"  left in topic {topic!r}: {count}" for topic, count in self.by_topic.items() if count]
        if self.in_flight:
            lines.append(f"  popped, and not acknowledged: {self.in_flight}")
        if self.waiting_for_retry:
            lines.append(f"  waiting for redelivery: {self.waiting_for_retry}; advance() lets time pass")
        return "\n".join(lines)


async def remaining(broker: Broker, group: str, topic: str | None) -> Remaining:
    """Return the rest of a group: of one topic and its retries, or of all its topics."""
    topics = _topics_of(broker, group) if topic is None else [topic, *_retry_topics(broker, group)]
    clients = _members(broker, group)
    by_topic: dict[str, int] = {}
    for name in topics:
        asked = await asyncio.gather(*(_progress_of(member, group, name) for member in clients))
        own = {queue_id: offset for table in asked for queue_id, offset in table.items()}
        by_topic[name] = _left(broker, group, name, own)
    pops = broker.services.pops.in_flight.by_group()
    in_flight = sum(pops.get((group, name), 0) for name in topics)
    waiting = waiting_for_retry(broker, group)
    return Remaining(len(clients), tuple(topics), by_topic, waiting, in_flight)


def waiting_for_retry(broker: Broker, group: str) -> int:
    """Return how many messages that a group has rejected wait for their redelivery."""
    return sum(1 for name in _retry_names(broker, group) for _ in delayed_messages(broker, name))


def _topics_of(broker: Broker, group: str) -> list[str]:
    """Return the topics that a group subscribes to or has consumed, and those of its retries."""
    services = broker.services
    found = services.clients.consumers.find_group(group)
    subscribed = set() if found is None else {each.topic for each in found.subscriptions.values()}
    known = subscribed | services.offsets.table.topics_of(group)
    return sorted(known | set(_retry_topics(broker, group))) if known else []


def _retry_topics(broker: Broker, group: str) -> list[str]:
    """Return the retry topics of a group that exist: one of its own, and one for each topic that it pops."""
    own = f"{RETRY_PREFIX}{group}"
    names = application_topics(broker)
    return [name for name in names if name == own or name.startswith((f"{own}_", f"{own}+"))]


def _retry_names(broker: Broker, group: str) -> set[str]:
    """Return the retry topics, those included that do not exist before the first message is due."""
    return {f"{RETRY_PREFIX}{group}", *_retry_topics(broker, group)}


def _left(broker: Broker, group: str, topic: str, own: dict[int, int]) -> int:
    """Return the messages of a topic behind the group's offsets; `own`: those of the members, by queue."""
    services = broker.services
    store, offsets, pops = services.storage.store, services.offsets.table, services.pops
    count = 0
    for queue_id in range(queues_of(broker, topic)):
        end = store.max_offset(topic, queue_id)
        key = QueueKey(topic, group, queue_id)
        consumed = max(offsets.query(group, topic, queue_id), own.get(queue_id, -1), pops.positions.get(key))
        begin = max(consumed, store.min_offset(topic, queue_id))
        if begin < end:
            count += _wanted(broker, group, topic, queue_id, begin, end)
    return count + pops.in_flight.by_group().get((group, topic), 0)


def _wanted(broker: Broker, group: str, topic: str, queue_id: int, begin: int, end: int) -> int:
    """Return how many messages of a range the group subscribes to.

    A member's offset stays before messages that its filter excludes, until one follows that it wants.
    """
    services = broker.services
    subscription = services.clients.consumers.find_subscription(group, topic)
    if subscription is None:
        return end - begin
    store, wanted = services.storage.store, services.filters.filters.of_pop(group, subscription)
    queue, count = store.queues.get(topic, queue_id), 0
    while begin < end:
        result = store.reader.get(
            queue, begin, _READ_AT_ONCE, wanted.tags_codes, properties=wanted.properties
        )
        count += result.count
        if result.next_offset <= begin:
            break
        begin = result.next_offset
    return count


def _members(broker: Broker, group: str) -> list[Connection]:
    found = broker.services.clients.consumers.find_group(group)
    if found is None:
        return []
    clients = [found.find_client(client_id) for client_id in found.client_ids()]
    return [client.connection for client in clients if client is not None]


async def _progress_of(member: Connection, group: str, topic: str) -> dict[int, int]:
    """Return the offsets up to which a member has consumed its queues; nothing if it does not tell."""
    header = GetConsumerStatusRequestHeader(topic=topic, group=group)
    request = RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header.encode())
    try:
        response = await member.send_request(request, _MEMBER_SECONDS)
        if response.code != ResponseCode.SUCCESS or not response.body:
            return {}
        table = GetConsumerStatusBody.decode(response.body).message_queue_table
    except RemotingError:  # it has left, or does not know the request
        return {}
    return {queue.queue_id: offset for queue, offset in table.items()}
