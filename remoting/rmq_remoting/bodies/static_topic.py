"""Static topics: logical queues that are mapped to queues of several brokers."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from ..integers import Int32, Int64
from .base import Body
from .topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper

GLOBAL_SCOPE: Final = "__global__"


class LogicQueueMappingItem(Body):
    """A range of a logical queue that is stored in one queue of one broker; -1 means open or unknown."""

    broker_name: str | None = Field(default=None, alias="bname")
    end_offset: Int64 = -1
    generation: Int32 = Field(default=0, alias="gen")
    logic_offset: Int64 = 0
    queue_id: Int32 = 0
    start_offset: Int64 = 0
    time_of_end: Int64 = -1
    time_of_start: Int64 = -1


class TopicQueueMappingInfo(Body):
    """The logical queues of a topic that a broker hosts now: logical id to its own queue id."""

    broker_name: str | None = Field(default=None, alias="bname")
    current_id_map: dict[Int32, Int32] = Field(default_factory=dict, alias="currIdMap")
    dirty: bool = False
    epoch: Int64 = 0
    scope: str = GLOBAL_SCOPE
    topic: str | None = None
    total_queues: Int32 = 0


class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """The full history of the logical queues that a broker hosts, by logical id."""

    hosted_queues: dict[Int32, list[LogicQueueMappingItem]] = Field(default_factory=dict)


class TopicQueueMappingOne(Body):
    """One logical queue of a mapping."""

    broker_name: str | None = Field(default=None, alias="bname")
    global_id: Int32 | None = None
    items: list[LogicQueueMappingItem] = Field(default_factory=list)
    mapping_detail: TopicQueueMappingDetail | None = None
    topic: str | None = None


class TopicConfigAndQueueMapping(TopicConfig):
    """A topic's configuration with its mapping, if it is static (response to GET_TOPIC_CONFIG)."""

    mapping_detail: TopicQueueMappingDetail | None = None


class TopicQueueMappingSerializeWrapper(Body):
    """All static topics of a broker (its topicQueueMapping.json)."""

    data_version: DataVersion = Field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = Field(default_factory=dict)


class TopicRemappingDetailWrapper(Body):
    """The state that mqadmin saves while it moves the queues of a static topic."""

    broker_config_map: dict[str, TopicConfigAndQueueMapping] = Field(default_factory=dict)
    broker_to_map_in: list[str] = Field(default_factory=list)
    broker_to_map_out: list[str] = Field(default_factory=list)
    epoch: Int64 = 0
    topic: str | None = None
    type: str | None = None


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper):
    """All topics of a broker with the mappings of the static ones: registration, GET_ALL_TOPIC_CONFIG."""

    mapping_data_version: DataVersion = Field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = Field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = Field(default_factory=dict)
