"""Topics: their configuration and the offsets of their queues."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from ..errors import BodyError
from ..integers import Int32, Int64
from . import constants, fastjson
from .base import Body, WireEnum
from .message_queue import QueueField

# Queues of a topic without a configured number (Apache RocketMQ 5.3.3, TopicConfig).
DEFAULT_QUEUE_NUMS: Final = 16
PERM_READ_WRITE = constants.PERM_READ_WRITE

_LINE_PARTS: Final = 5


class TopicFilterType(WireEnum):
    """Whether a message has one tag or several; in practice Apache uses only the first."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class DataVersion(Body):
    """The version of a table, to tell which of two is newer; `timestamp` is the time of the last change."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0

    def next(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """Return the version after a change."""
        return DataVersion(counter=self.counter + 1, state_version=state_version, timestamp=now_ms)


class TopicConfig(Body):
    """Configuration of a topic on one broker."""

    attributes: dict[str, str] = Field(default_factory=dict)
    order: bool = False
    perm: Int32 = PERM_READ_WRITE
    read_queue_nums: Int32 = DEFAULT_QUEUE_NUMS
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_name: str
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = DEFAULT_QUEUE_NUMS

    def to_line(self) -> str:
        """Encode the line of a compressed registration (Apache's TopicConfig.encode): no order, no flags."""
        numbers = f"{self.read_queue_nums} {self.write_queue_nums} {self.perm}"
        attributes = fastjson.dumps(self.attributes).decode()
        return f"{self.topic_name} {numbers} {self.topic_filter_type} {attributes}"

    @staticmethod
    def members_of_line(line: str) -> dict[str, object]:
        """Decode the members of such a line, which are still to be validated. Raises BodyError.

        Apache splits at every blank and thereby loses attributes that contain blanks; here they are kept.
        """
        parts = line.split(" ", _LINE_PARTS)
        if len(parts) < _LINE_PARTS:
            raise BodyError(f"TopicConfig: a line needs at least {_LINE_PARTS} parts, got {line!r:.120}")
        names = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
        members: dict[str, object] = dict(zip(names, parts, strict=False))
        if len(parts) > _LINE_PARTS and parts[_LINE_PARTS]:
            members["attributes"] = fastjson.loads(parts[_LINE_PARTS].encode())
        return members


class TopicConfigSerializeWrapper(Body):
    """All topics of a broker (its topics.json)."""

    data_version: DataVersion = Field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = Field(default_factory=dict)


class CreateTopicListRequestBody(Body):
    """Topics to create or update at once."""

    topic_config_list: list[TopicConfig] = Field(default_factory=list)


class TopicOffset(Body):
    """Offsets of a queue; `max_offset` is the next one, the timestamp that of the last message or 0."""

    last_update_timestamp: Int64 = 0
    max_offset: Int64 = 0
    min_offset: Int64 = 0


class TopicStatsTable(Body):
    """Offsets of all queues of a topic."""

    offset_table: dict[QueueField, TopicOffset] = Field(default_factory=dict)
    topic_put_tps: float = 0.0
