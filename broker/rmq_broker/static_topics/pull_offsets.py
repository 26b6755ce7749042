"""The offsets in responses to pulls from logical queues.

A logical queue is read item by item. The response of the physical queue says where to continue in the item,
or that the item has no further message. Then the client continues in the next item.

Source: Apache RocketMQ 5.3.3, PullMessageProcessor.rewriteResponseForStaticTopic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from rmq_remoting.bodies.static_topic import LogicQueueMappingItem
from rmq_remoting.codes import ResponseCode

from ..topics.queue_mapping import (
    Items,
    highest_logical_offset,
    is_ended,
    item_after,
    item_at,
    logical_offset,
)

_FOUND: Final = int(ResponseCode.SUCCESS)
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
_RETRY: Final = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
# Responses with offsets.
PULL_CODES: Final = frozenset({_FOUND, _NOT_FOUND, _RETRY, _MOVED})


class PullOffsets(NamedTuple):
    """Code and offsets of a response to a pull."""

    code: int
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class ItemPull:
    """A pull from one item of a logical queue; `asked_offset` is in the item's physical queue."""

    items: Items
    item: LogicQueueMappingItem
    asked_offset: int

    @property
    def is_at_leader(self) -> bool:
        """Whether the item is the last one: it may get new messages."""
        return self.item is self.items[-1]

    def in_logical_queue(self, physical: PullOffsets) -> tuple[PullOffsets, LogicQueueMappingItem]:
        """Translate the offsets of a physical queue's response.

        Returns them with the item that the next pull reads.
        """
        item, offsets = self.item, physical
        if physical.code != _FOUND:
            item, offsets = self._without_messages(physical)
        following = offsets.next_offset
        if is_ended(item):
            following = min(following, item.end_offset)
        highest = max(logical_offset(item, offsets.max_offset), highest_logical_offset(self.items[-1]))
        return (
            PullOffsets(
                offsets.code,
                logical_offset(item, following),
                logical_offset(item, max(item.start_offset, offsets.min_offset)),
                highest,
            ),
            item,
        )

    def _without_messages(self, physical: PullOffsets) -> tuple[LogicQueueMappingItem, PullOffsets]:
        """Decide where the client continues after a response without messages."""
        asked, item = self.asked_offset, self.item
        lowest, highest = physical.min_offset, physical.max_offset
        if self._is_earliest:
            if asked < lowest:
                return item, physical._replace(code=_MOVED, next_offset=lowest)
            if asked >= highest:
                return self._in_next_item(physical)
            return item, physical
        if self.is_at_leader:
            if asked > highest and physical.code == _MOVED:
                return item, physical._replace(next_offset=highest)
            if asked < lowest:
                return item, physical._replace(code=_RETRY, next_offset=lowest)
            return item, physical
        if asked < lowest:
            return item, physical._replace(code=_RETRY, next_offset=lowest)
        if asked >= highest:
            return self._in_next_item(physical)
        return item, physical

    @property
    def _is_earliest(self) -> bool:
        return self.item is item_at(self.items, 0)

    def _in_next_item(self, physical: PullOffsets) -> tuple[LogicQueueMappingItem, PullOffsets]:
        """Let the client continue with the next item, or wait until the next item is located.

        At the last item, PULL_OFFSET_MOVED stays. Apache's broker answers PULL_NOT_FOUND there, so a consumer
        at the tail does not commit the offset that its group was reset to.
        """
        following = item_after(self.items, self.item)
        if following is None:
            return self.item, physical if self.is_at_leader else physical._replace(code=_NOT_FOUND)
        begin = following.start_offset
        return following, PullOffsets(_RETRY, begin, begin, begin)
