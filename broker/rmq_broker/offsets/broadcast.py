"""Offsets of the members of broadcasting groups, for members that switch between a proxy and the broker.

Such a member stores its own offsets. A member behind a proxy has no place to store them, and a member that
switches does not bring them along. (Apache RocketMQ 5.3.3, BroadcastOffsetManager and PullMessageProcessor.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.heartbeat import ConsumeType
from rmq_remoting.headers.pull import PROXY_FOR_BROADCAST

from .table import NO_OFFSET, OffsetsByQueue, broadcast_group

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection
    from rmq_remoting.headers.pull import PullMessageRequestHeader

    from ..clients.consumers import ConsumerTable
    from ..clock import ClockMs
    from ..settings.topics import TopicSettings
    from ..store.api import MessageStore
    from .table import ConsumerOffsetTable

log = logging.getLogger("rmq.broker.offsets")

# Interval of `scan`.
SCAN_SECONDS: Final = 5.0
# Proxies name the members; no cluster has this many.
_MAX_MEMBERS: Final = 100_000
# Offsets that a scan looks at before other requests run: 0.5 ms.
_OFFSETS_PER_SLICE: Final = 1024


@dataclass(slots=True)
class _Member:
    """Offsets up to which one client has pulled a topic, and whether it pulls through a proxy."""

    from_proxy: bool
    seen_ms: int
    offsets: OffsetsByQueue = field(default_factory=dict)


_Members = dict[str, _Member]


class BroadcastOffsets:
    """Offsets of such members, taken from their pulls; the lowest of each queue are persisted.

    A member is removed some minutes after its last pull.
    """

    def __init__(
        self,
        offsets: ConsumerOffsetTable,
        consumers: ConsumerTable,
        store: MessageStore,
        settings: TopicSettings,
        steady_ms: ClockMs,
    ) -> None:
        self._offsets = offsets
        self._consumers = consumers
        self._store = store
        self._settings = settings
        self._steady_ms = steady_ms
        # By group and topic, then by client id.
        self._members: dict[tuple[str, str], _Members] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def client_id(self, connection: Connection, pull: PullMessageRequestHeader) -> str | None:
        """Return the member that sent a pull; None if its group does not broadcast."""
        if not self._settings.enable_broadcast_offset_store:
            return None
        if pull.request_source == PROXY_FOR_BROADCAST:
            return pull.proxy_forward_client_id
        group = self._consumers.find_group(pull.consumer_group)
        if group is None or not group.is_broadcasting:
            return None
        if group.consume_type is not ConsumeType.CONSUME_PASSIVELY:
            return None
        client = group.members.get(connection)
        return None if client is None else client.client_id

    def first_offset(self, client_id: str, pull: PullMessageRequestHeader) -> int:
        """Return the start offset of a member that switched to or from a proxy, or does not know its offset.

        NO_OFFSET for any other member: it continues at the offset of its request.
        """
        from_proxy = pull.request_source == PROXY_FOR_BROADCAST
        is_lost = from_proxy and pull.queue_offset < 0
        members = self._members.get((pull.consumer_group, pull.topic))
        if members is None:
            return self._beginning(pull) if is_lost else NO_OFFSET
        member = members.get(client_id)
        if member is None:
            return self._beginning(pull) if is_lost else NO_OFFSET
        if is_lost or member.from_proxy != from_proxy:
            known = member.offsets.get(pull.queue_id, NO_OFFSET)
            return known if known >= 0 else self._beginning(pull)
        return NO_OFFSET

    def pulled(self, client_id: str, pull: PullMessageRequestHeader, offset: int) -> None:
        """Record that a member has received all messages up to `offset`."""
        if offset < 0:
            return
        from_proxy = pull.request_source == PROXY_FOR_BROADCAST
        members = self._members.setdefault((pull.consumer_group, pull.topic), {})
        member = members.get(client_id)
        if member is None:
            if self._count >= _MAX_MEMBERS:
                return
            member = members[client_id] = _Member(from_proxy, self._steady_ms())
            self._count += 1
        member.from_proxy = from_proxy
        member.seen_ms = self._steady_ms()
        member.offsets[pull.queue_id] = max(offset, member.offsets.get(pull.queue_id, offset))

    def topics_removed(self, topics: Collection[str]) -> None:
        """Remove the members' offsets in deleted topics."""
        if topics:
            for key in [key for key in self._members if key[1] in topics]:
                self._count -= len(self._members.pop(key))

    async def scan(self) -> None:
        """Commit the lowest offsets of each group and topic, and remove inactive members.

        The loop serves requests between slices of the offsets.
        """
        offsets = 0
        for group, topic in list(self._members):
            for _ in self._scan_topic(group, topic):
                offsets += 1
                if offsets % _OFFSETS_PER_SLICE == 0:
                    await asyncio.sleep(0)

    def _scan_topic(self, group: str, topic: str) -> Iterator[None]:
        """Scan the members of a group in a topic; yield after each offset."""
        lowest: OffsetsByQueue = {}
        for client_id in self._recent_members(group, topic):
            member = self._members.get((group, topic), {}).get(client_id)
            for queue_id, offset in list(member.offsets.items()) if member is not None else ():
                lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
                yield
        first = next(iter(lowest), 0)
        for queue_id, offset in lowest.items():
            if self._store.queues.get(topic, first) is None:
                return  # the topic has been deleted
            if self._offsets.query(broadcast_group(group), topic, queue_id) != offset:
                self._offsets.put(broadcast_group(group), topic, queue_id, offset)
            yield

    # --- internals ---

    def _beginning(self, pull: PullMessageRequestHeader) -> int:
        """Return the start offset of a group: its members' lowest offset, or that of a new group."""
        topic, queue_id = pull.topic, pull.queue_id
        kept = self._offsets.query(broadcast_group(pull.consumer_group), topic, queue_id)
        if kept >= 0:
            return kept
        if self._store.is_first_in_memory(topic, queue_id):
            return 0
        return self._store.max_offset(topic, queue_id)

    def _recent_members(self, group: str, topic: str) -> list[str]:
        """Return the client ids of recently active members; remove those that are inactive for long."""
        settings, now_ms = self._settings, self._steady_ms()
        members, recent = self._members.get((group, topic), {}), list[str]()
        found = self._consumers.find_group(group)
        online = set() if found is None else set(found.client_ids())
        for client_id, member in list(members.items()):
            silent_seconds = (now_ms - member.seen_ms) / 1000
            is_recent = silent_seconds < settings.broadcast_offset_expire_second
            if client_id in online or is_recent:
                recent.append(client_id)
            limit = settings.broadcast_offset_expire_max_second if client_id in online else 0
            if not is_recent and silent_seconds >= limit:
                del members[client_id]
                self._count -= 1
        if not members:
            self._members.pop((group, topic), None)
        return recent
