"""Checks of a static topic's mapping before it replaces the current one.

Source: Apache RocketMQ 5.3.3, TopicQueueMappingManager.updateTopicQueueMapping, TopicQueueMappingUtils. What
these classes only assert, and a production JVM therefore does not check, is checked here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from rmq_remoting.bodies.static_topic import TopicQueueMappingDetail

from .queue_mapping import UNKNOWN, Items, highest_logical_offset, is_located

# Bounds that Apache's broker does not have. A logical queue gets an item with each remapping, and loses the
# oldest one when its messages have been deleted.
MAX_ITEMS_OF_QUEUE: Final = 128
MAX_ITEMS_OF_BROKER: Final = 16_384


class MappingProblem(ValueError):
    """A mapping that is not accepted; the message is the remark for the client."""


def check_mapping(detail: TopicQueueMappingDetail, topic: str, broker_name: str) -> None:
    """Check a mapping by itself. Raises MappingProblem."""
    if detail.topic != topic:
        raise MappingProblem(
            f"the mapping is that of topic {detail.topic!r}, and the request names {topic!r}"
        )
    if detail.broker_name != broker_name:
        raise MappingProblem(
            f"topic {topic}: the mapping is for broker {detail.broker_name!r}, and this is {broker_name!r}"
        )
    for logical_id, items in detail.hosted_queues.items():
        if not 0 <= logical_id < detail.total_queues:
            raise MappingProblem(
                f"topic {topic}: logical queue {logical_id} is outside of the {detail.total_queues} queues "
                "of the mapping, counted from 0"
            )
        check_items(f"topic {topic}, logical queue {logical_id}", items)


def check_items(queue: str, items: Items) -> None:
    """Check the items of a logical queue (checkLogicQueueMappingItemOffset). Raises MappingProblem."""
    if len(items) > MAX_ITEMS_OF_QUEUE:
        raise MappingProblem(
            f"{queue}: {len(items)} items, the limit is {MAX_ITEMS_OF_QUEUE}. Remap again when the messages "
            "of the oldest items have been deleted"
        )
    for item in items:
        if item.start_offset < 0 or item.generation < 0 or item.queue_id < 0 or not item.broker_name:
            raise MappingProblem(
                f"{queue}: item of generation {item.generation}: startOffset {item.start_offset}, gen and "
                f"queueId {item.queue_id} must not be negative, and bname must not be empty"
            )
        if item.end_offset != UNKNOWN and item.end_offset < item.start_offset:
            raise MappingProblem(
                f"{queue}: item of generation {item.generation}: endOffset {item.end_offset} is below "
                f"startOffset {item.start_offset}"
            )
    for item, following in pairwise(items):
        if not is_located(item):
            raise MappingProblem(
                f"{queue}: item of generation {item.generation} is not the last one, but its logicOffset "
                f"{item.logic_offset} is negative"
            )
        if item.generation >= following.generation:
            raise MappingProblem(
                f"{queue}: generation {following.generation} follows {item.generation}; each must be higher "
                "than the one before"
            )
        if following.logic_offset != UNKNOWN and highest_logical_offset(item) >= following.logic_offset:
            raise MappingProblem(
                f"{queue}: generation {following.generation} begins at logicOffset {following.logic_offset}, "
                f"which generation {item.generation} already holds (up to {highest_logical_offset(item)})"
            )


def check_successor(old: TopicQueueMappingDetail, new: TopicQueueMappingDetail) -> None:
    """Check a mapping against the one that it is to replace. Raises MappingProblem."""
    topic = old.topic
    if new.epoch < old.epoch:
        raise MappingProblem(
            f"topic {topic}: epoch {new.epoch} of the mapping is older than epoch {old.epoch} on this "
            "broker. Read the current mapping and repeat the command"
        )
    if new.scope != old.scope:
        raise MappingProblem(f"topic {topic}: scope {new.scope!r} differs from {old.scope!r} on this broker")
    same_epoch = new.epoch == old.epoch
    for logical_id, old_items in old.hosted_queues.items():
        queue = f"topic {topic}, logical queue {logical_id}"
        new_items = new.hosted_queues.get(logical_id)
        if new_items is not None:
            _check_successor(queue, old_items, new_items, same_epoch)
        elif same_epoch:
            raise MappingProblem(f"{queue}: missing in the mapping, which has the epoch of the current one")


def _check_successor(queue: str, old_items: Items, new_items: Items, same_epoch: bool) -> None:
    """Check that items which stay did not change (makeSureLogicQueueMappingItemImmutable)."""
    if not old_items:
        return
    if not new_items:
        raise MappingProblem(f"{queue}: no items in the mapping, {len(old_items)} on this broker")
    known = {item.generation: item for item in old_items}
    for new in new_items:
        old = known.get(new.generation)
        if old is None:
            continue
        moved = (old.broker_name, old.queue_id, old.start_offset) != (
            new.broker_name,
            new.queue_id,
            new.start_offset,
        )
        if moved or old.logic_offset not in (UNKNOWN, new.logic_offset):
            raise MappingProblem(
                f"{queue}: generation {new.generation} is queue {new.queue_id} of {new.broker_name} from "
                f"logicOffset {new.logic_offset} on; on this broker it is queue {old.queue_id} of "
                f"{old.broker_name} from {old.logic_offset} on, and items never change"
            )
    if same_epoch and new_items[-1].generation != old_items[-1].generation:
        raise MappingProblem(
            f"{queue}: generation {new_items[-1].generation} leads instead of {old_items[-1].generation}; a "
            "new leader needs a higher epoch"
        )
