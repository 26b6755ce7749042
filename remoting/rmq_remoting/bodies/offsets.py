"""Offsets of consumer groups."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import Field

from ..integers import Int32, Int64
from .base import Body
from .message_queue import MessageQueueForC, QueueField
from .topic import DataVersion


class ConsumerOffsetSerializeWrapper(Body):
    """All offsets of a broker (its consumerOffset.json): `topic@group` to queue id to next offset."""

    data_version: DataVersion | None = None
    offset_table: dict[str, dict[Int32, Int64]] = Field(default_factory=dict)


class DelayOffsetSerializeWrapper(Body):
    """Offsets of the delay levels' queues (a broker's delayOffset.json), by level."""

    data_version: DataVersion | None = None
    offset_table: dict[Int32, Int64] = Field(default_factory=dict)


class RocksDBOffsetSerializeWrapper(Body):
    """Offsets of one `topic@group` by queue id, as a value in Apache's RocksDB configuration store."""

    offset_table: dict[Int32, Int64] = Field(default_factory=dict)


class OffsetSerializeWrapper(Body):
    """Offsets that a broadcasting consumer stores on its own disk (offsets.json)."""

    offset_table: dict[QueueField, Int64] = Field(default_factory=dict)


class OffsetWrapper(Body):
    """A group's offsets in one queue; `last_timestamp` is the store time of the last consumed message."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0
    pull_offset: Int64 = 0


class ConsumeStats(Body):
    """A group's offsets in all its queues."""

    consume_tps: float = 0.0
    offset_table: dict[QueueField, OffsetWrapper] = Field(default_factory=dict)


class ConsumeStatsList(Body):
    """The offsets of all groups of a broker, by group."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = Field(default_factory=list)
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


class GetConsumerStatusBody(Body):
    """Offsets of a group's clients: from a client by queue, from a broker by client id and queue."""

    consumer_table: dict[str, dict[QueueField, Int64]] = Field(default_factory=dict)
    message_queue_table: dict[QueueField, Int64] = Field(default_factory=dict)


class ResetOffsetBody(Body):
    """New offsets for a client."""

    offset_table: dict[QueueField, Int64] = Field(default_factory=dict)


class ResetOffsetBodyForC(Body):
    """New offsets for a client whose JSON reader has no object keys."""

    offset_table: list[MessageQueueForC] = Field(default_factory=list)


class QueryCorrectionOffsetBody(Body):
    """Offsets by queue id to which a group should go back, because another group has not consumed more."""

    correction_offsets: dict[Int32, Int64] = Field(default_factory=dict)


class RollbackStats(Body):
    """The result of a reset for one queue."""

    broker_name: str | None = None
    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    queue_id: Int64 = 0
    rollback_offset: Int64 = 0
    timestamp_offset: Int64 = 0


class QueueTimeSpan(Body):
    """Store times of a queue's first and last message, and of the last message that a group has consumed.

    Each time is also encoded as text in the local time zone, for people; that text is never decoded.
    """

    consume_timestamp: Int64 = Field(default=0, alias="consumeTimeStamp")
    delay_time_ms: Int64 = Field(default=0, alias="delayTime")
    max_timestamp: Int64 = Field(default=0, alias="maxTimeStamp")
    message_queue: QueueField | None = None
    min_timestamp: Int64 = Field(default=0, alias="minTimeStamp")

    def to_wire(self) -> dict[str, object]:
        """Return the members as of any body, and the times as text."""
        members = super().to_wire()
        for name in ("consumeTimeStamp", "maxTimeStamp", "minTimeStamp"):
            members[f"{name}Str"] = _local_text(members[name])
        return dict(sorted(members.items()))


def _local_text(timestamp: object) -> str:
    assert isinstance(timestamp, int)
    moment = datetime.fromtimestamp(timestamp // 1000, UTC).astimezone()
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{timestamp % 1000:03}"


class QueryConsumeTimeSpanBody(Body):
    """The time spans of a topic's queues on one broker."""

    consume_time_span_set: list[QueueTimeSpan] = Field(default_factory=list)
