"""Where the members of broadcasting groups are, so that one can go over from a proxy to the broker or back.

Such a member keeps its offsets itself: one behind a proxy has nowhere to keep them, and one that goes over
does not have them with it. (Apache RocketMQ 5.3.3, BroadcastOffsetManager and PullMessageProcessor.)
"""

from __future__ import annotations

import logging
from collections.abc import Collection
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

# How often `scan` is to be called.
SCAN_SECONDS: Final = 5.0
# Members are named by proxies: as many as no cluster has.
_MAX_MEMBERS: Final = 100_000


@dataclass(slots=True)
class _Member:
    """Up to where one client has pulled a topic, and by which way."""

    from_proxy: bool
    seen_ms: int
    offsets: OffsetsByQueue = field(default_factory=dict)


_Members = dict[str, _Member]


class BroadcastOffsets:
    """The offsets of such members, as their pulls show them; their lowest are kept on disk.

    A member is forgotten some minutes after its last pull.
    """

    def __init__(
        self,
        offsets: ConsumerOffsetTable,
        consumers: ConsumerTable,
        store: MessageStore,
        settings: TopicSettings,
        now_ms: ClockMs,
    ) -> None:
        self._offsets = offsets
        self._consumers = consumers
        self._store = store
        self._settings = settings
        self._now_ms = now_ms
        # By group and topic, and by client id.
        self._members: dict[tuple[str, str], _Members] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def client_id(self, connection: Connection, pull: PullMessageRequestHeader) -> str | None:
        """The member that a pull is of; None where its group does not broadcast."""
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
        """Where a member has to begin that comes by another way than before, or does not know where it was.

        NO_OFFSET for any other: it goes on where it says.
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
        """A member has everything up to `offset`."""
        if offset < 0:
            return
        from_proxy = pull.request_source == PROXY_FOR_BROADCAST
        members = self._members.setdefault((pull.consumer_group, pull.topic), {})
        member = members.get(client_id)
        if member is None:
            if self._count >= _MAX_MEMBERS:
                return
            member = members[client_id] = _Member(from_proxy, self._now_ms())
            self._count += 1
        member.from_proxy = from_proxy
        member.seen_ms = self._now_ms()
        member.offsets[pull.queue_id] = max(offset, member.offsets.get(pull.queue_id, offset))

    def topics_removed(self, topics: Collection[str]) -> None:
        """Forget where members were in topics that have just been deleted."""
        if topics:
            for key in [key for key in self._members if key[1] in topics]:
                self._count -= len(self._members.pop(key))

    def scan(self) -> None:
        """Note the lowest offsets of each group and topic; forget who is gone. Every `SCAN_SECONDS`."""
        for (group, topic), members in list(self._members.items()):
            lowest = self._lowest(group, members)
            if not members:
                del self._members[group, topic]
            if self._store.queues.get(topic, next(iter(lowest), 0)) is None:
                continue  # the topic has been deleted
            for queue_id, offset in lowest.items():
                if self._offsets.query(broadcast_group(group), topic, queue_id) != offset:
                    self._offsets.put(broadcast_group(group), topic, queue_id, offset)

    # --- inside ---

    def _beginning(self, pull: PullMessageRequestHeader) -> int:
        """Where a group begins: where its members were, or as any new group does."""
        topic, queue_id = pull.topic, pull.queue_id
        kept = self._offsets.query(broadcast_group(pull.consumer_group), topic, queue_id)
        if kept >= 0:
            return kept
        if self._store.is_in_memory(topic, queue_id, 0):
            return 0
        return self._store.max_offset(topic, queue_id)

    def _lowest(self, group: str, members: _Members) -> OffsetsByQueue:
        """The lowest offset by queue, of members that are there or have been lately; others are forgotten."""
        settings, now_ms = self._settings, self._now_ms()
        found = self._consumers.find_group(group)
        online = set() if found is None else set(found.client_ids())
        lowest: OffsetsByQueue = {}
        for client_id, member in list(members.items()):
            silent_seconds = (now_ms - member.seen_ms) / 1000
            is_recent = silent_seconds < settings.broadcast_offset_expire_second
            if client_id in online or is_recent:
                for queue_id, offset in member.offsets.items():
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
            limit = settings.broadcast_offset_expire_max_second if client_id in online else 0
            if not is_recent and silent_seconds >= limit:
                del members[client_id]
                self._count -= 1
        return lowest
