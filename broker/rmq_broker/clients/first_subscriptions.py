"""When each consumer group first subscribed to each topic, measured by the end of the commit log.

The end of the log, and not a time, tells the messages that are newer than a subscription: the log only grows,
while clocks jump, and a message's place in it is known without reading the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from rmq_remoting.bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache

from .subscription import Subscription

_MAX_ENTRIES: Final = 100_000
_MAX_BYTES: Final = 64 * 1024 * 1024


class FirstSubscriptions:
    """Physical offset at which the commit log ended when a group's first heartbeat named a topic.

    Kept in memory since the start of this broker, for groups without members too. A group that subscribed
    before the start, or whose entry was evicted, counts from its next heartbeat. It then seems younger than
    it is, so an old message is never taken for a newer one.
    """

    def __init__(self, log_end: Callable[[], int]) -> None:
        self._log_end = log_end
        self._log_ends: BoundedCache[tuple[str, str], int] = BoundedCache(
            "first_subscriptions",
            max_entries=_MAX_ENTRIES,
            max_bytes=_MAX_BYTES,
            size_of=lambda key, _: ENTRY_OVERHEAD_BYTES + len(key[0]) + len(key[1]),
        )
        self.caches: tuple[BoundedCache[Any, Any], ...] = (self._log_ends,)

    def heard(self, group: str, subscriptions: Iterable[Subscription]) -> None:
        """Note the subscriptions of a heartbeat that are new for the group."""
        for subscription in subscriptions:
            key = (group, subscription.topic)
            if key not in self._log_ends:
                self._log_ends.put(key, self._log_end())

    def group_removed(self, group: str) -> None:
        """Forget a deleted group; one of the same name starts anew."""
        for key in [key for key in self._log_ends.entries if key[0] == group]:
            self._log_ends.discard(key)

    def is_older(self, group: str, topic: str, physical_offset: int) -> bool:
        """Whether the group subscribed to the topic before the message at `physical_offset` was stored."""
        log_end = self._log_ends.get((group, topic))
        return log_end is not None and log_end <= physical_offset
