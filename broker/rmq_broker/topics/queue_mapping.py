"""The logical queues of a static topic on one broker, and the arithmetic of their offsets.

A logical queue is a chain of items. Each is a range of offsets that is stored in one queue of one broker. The
last item is the leader: its broker stores new messages and answers clients. A new leader begins with an
unknown logical offset (-1), until the remapping tool knows where its predecessor ended.

Source: Apache RocketMQ 5.3.3, LogicQueueMappingItem, TopicQueueMappingDetail, TopicQueueMappingUtils.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from rmq_remoting.bodies.static_topic import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
)
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.integer_bounds import INT64_MAX

UNKNOWN: Final = -1

Items = Sequence[LogicQueueMappingItem]


# --- offsets of one item ---


def is_located(item: LogicQueueMappingItem) -> bool:
    """Whether the logical offset at which an item begins is known."""
    return item.logic_offset >= 0


def is_ended(item: LogicQueueMappingItem) -> bool:
    """Whether the end of an item's physical queue is known. Apache's tool does not record it."""
    return item.end_offset > item.start_offset


def logical_offset(item: LogicQueueMappingItem, physical_offset: int) -> int:
    """Return the logical offset of a message (computeStaticQueueOffsetStrictly)."""
    return item.logic_offset + max(0, physical_offset - item.start_offset)


def bounded_logical_offset(item: LogicQueueMappingItem, physical_offset: int) -> int:
    """Return the same within the item; UNKNOWN for an item that is not located.

    (computeStaticQueueOffsetLoosely.)
    """
    if not is_located(item):
        return UNKNOWN
    if item.start_offset <= item.end_offset < physical_offset:
        return item.logic_offset + item.end_offset - item.start_offset
    return logical_offset(item, physical_offset)


def physical_offset(item: LogicQueueMappingItem, offset: int) -> int:
    """Return the offset in an item's physical queue; below the item's begin it is negative."""
    return offset - item.logic_offset + item.start_offset


def offset_delta(item: LogicQueueMappingItem) -> int:
    """Return the number that clients add to the offsets in messages of an item."""
    return item.logic_offset - item.start_offset


def highest_logical_offset(item: LogicQueueMappingItem) -> int:
    """Return the logical end of an item, or its begin if its end is not known."""
    return item.logic_offset + max(0, item.end_offset - item.start_offset)


# --- items of one logical queue ---


def item_at(items: Items, offset: int) -> LogicQueueMappingItem | None:
    """Return the item with a logical offset; the first one for an offset before it.

    Items that are not located hold no offset. None if there is no other.
    """
    located = [item for item in items if is_located(item)]
    for item in reversed(located):
        if offset >= item.logic_offset:
            return item
    return located[0] if located else None


def located_item(topic: str, logical_id: int, items: Items, offset: int) -> LogicQueueMappingItem:
    """Return the item with a logical offset. Raises CommandError if no item is located."""
    item = item_at(items, offset)
    if item is None:
        raise CommandError(
            ResponseCode.SYSTEM_ERROR,
            f"the offsets of logical queue {logical_id} of {topic} are not known yet: its remapping has not "
            "ended. Retry after the end of remappingStaticTopic",
        )
    return item


def newest_item(topic: str, logical_id: int, items: Items) -> LogicQueueMappingItem:
    """Return the last item that is located. Raises CommandError if none is."""
    return located_item(topic, logical_id, items, INT64_MAX)


def item_after(items: Items, current: LogicQueueMappingItem) -> LogicQueueMappingItem | None:
    """Return the item that follows; None for the last one, and where the next one is not located."""
    for item, following in pairwise(items):
        if is_located(item) and item.generation == current.generation:
            return following if is_located(following) else None
    return None


class QueueMapping:
    """The mapping of one static topic on this broker; never changed, only replaced."""

    __slots__ = ("detail", "info", "leaders")

    def __init__(self, detail: TopicQueueMappingDetail) -> None:
        self.detail: Final = detail
        # The items that store new messages here, by logical id.
        self.leaders: Final[Mapping[int, LogicQueueMappingItem]] = {
            logical_id: items[-1]
            for logical_id, items in detail.hosted_queues.items()
            if items and items[-1].broker_name == detail.broker_name
        }
        # The part for name servers (TopicQueueMappingDetail.cloneAsMappingInfo).
        self.info: Final = TopicQueueMappingInfo(
            broker_name=detail.broker_name,
            current_id_map={logical_id: item.queue_id for logical_id, item in self.leaders.items()},
            epoch=detail.epoch,
            topic=detail.topic,
            total_queues=detail.total_queues,
        )

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.detail.topic or ""

    @property
    def broker_name(self) -> str:
        """The name of this broker."""
        return self.detail.broker_name or ""

    @property
    def item_count(self) -> int:
        """The number of items of all logical queues."""
        return sum(map(len, self.detail.hosted_queues.values()))

    def is_here(self, item: LogicQueueMappingItem) -> bool:
        """Whether this broker has the physical queue of an item."""
        return item.broker_name == self.detail.broker_name

    def leader(self, logical_id: int) -> LogicQueueMappingItem:
        """Return the item that stores new messages of a logical queue. Raises CommandError if not here."""
        item = self.leaders.get(logical_id)
        if item is None:
            raise self._not_led(logical_id)
        return item

    def led_items(self, logical_id: int) -> Items:
        """Return all items of a logical queue that this broker leads. Raises CommandError."""
        if logical_id not in self.leaders:
            raise self._not_led(logical_id)
        return self.detail.hosted_queues[logical_id]

    def _not_led(self, logical_id: int) -> CommandError:
        items = self.detail.hosted_queues.get(logical_id)
        leader = f"broker {items[-1].broker_name} does" if items else "ask a name server for the route"
        return CommandError(
            ResponseCode.NOT_LEADER_FOR_QUEUE,
            f"broker {self.broker_name} does not lead logical queue {logical_id} of static topic "
            f"{self.topic}: {leader}",
        )
