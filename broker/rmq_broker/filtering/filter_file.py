"""`consumerFilter.json` (Apache RocketMQ 5.3.3, ConsumerFilterManager)."""

from __future__ import annotations

from pydantic import Field

from rmq_remoting.bodies.base import Body
from rmq_remoting.integers import Int32, Int64


class BloomFilterData(Body):
    """The bits of a group's filter for a topic."""

    bit_num: Int32 = 0
    bit_pos: list[Int32] = Field(default_factory=list)


class ConsumerFilterData(Body):
    """A group's expression for a topic; `dead`: it has had no subscriber since `dead_time`."""

    bloom_filter_data: BloomFilterData | None = None
    born_time: Int64 = 0
    client_version: Int64 = 0
    consumer_group: str = ""
    dead: bool = False
    dead_time: Int64 = 0
    expression: str | None = None
    expression_type: str | None = None
    topic: str = ""


class FilterDataMapByTopic(Body):
    """Filters of a topic, by group."""

    group_filter_data: dict[str, ConsumerFilterData] = Field(default_factory=dict)
    topic: str | None = None


class ConsumerFilterWrapper(Body):
    """Filters of a broker, by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = Field(default_factory=dict)
