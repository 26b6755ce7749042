"""Mappings of static topics, and the requests that set them, as mqadmin makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmq_remoting.bodies.static_topic import LogicQueueMappingItem, TopicQueueMappingDetail
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.topic import CreateTopicRequestHeader

EPOCH = 1_700_000_000_000


def item(
    broker: str, queue_id: int = 0, begin: int = 0, *, generation: int = 0, end: int = -1
) -> LogicQueueMappingItem:
    """An item that begins at the logical offset `begin`; -1: not located."""
    return LogicQueueMappingItem(
        broker_name=broker, queue_id=queue_id, logic_offset=begin, generation=generation, end_offset=end
    )


def mapping(
    broker: str,
    queues: Mapping[int, Sequence[LogicQueueMappingItem]],
    *,
    topic: str = "S",
    total: int | None = None,
    epoch: int = EPOCH,
) -> TopicQueueMappingDetail:
    """The mapping of a static topic on a broker."""
    return TopicQueueMappingDetail(
        broker_name=broker,
        topic=topic,
        epoch=epoch,
        total_queues=len(queues) if total is None else total,
        hosted_queues={logical_id: list(items) for logical_id, items in queues.items()},
    )


def map_topic(detail: TopicQueueMappingDetail, queues: int = 1, *, force: bool = False) -> RemotingCommand:
    """Create or update a static topic with physical queues on a broker."""
    header = CreateTopicRequestHeader(
        topic=detail.topic or "",
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        force=force,
    )
    return RemotingCommand.request(
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header.encode(), detail.encode()
    )
