"""POP: batches of acknowledgements, and the records of the broker's revive topic.

The wire names are one or two letters; the long names are decoded, too (Apache RocketMQ 5.3.3, BatchAck,
AckMsg, BatchAckMsg, PopCheckPoint).
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ..integers import Int32, Int64
from .base import Body


def _bits(value: Any) -> Any:
    """Decode Java's BitSet.toByteArray in Base64: bit n is bit n % 8 of byte n // 8."""
    return int.from_bytes(b64decode(value, validate=True), "little") if isinstance(value, str) else value


class BatchAck(Body):
    """Acknowledged messages of one pop: bit n of `bit_set` stands for the offset `start_offset` + n."""

    bit_set: Annotated[int, BeforeValidator(_bits), Field(ge=0)] = Field(default=0, alias="b")
    consumer_group: str = Field(alias="c")
    invisible_time_ms: Int64 = Field(default=0, alias="it")
    pop_time: Int64 = Field(default=0, alias="pt")
    queue_id: Int32 = Field(default=0, alias="q")
    # "1" if popped from the group's retry topic, "0" if not.
    retry: str | None = Field(default=None, alias="r")
    revive_queue_id: Int32 = Field(default=0, alias="rq")
    start_offset: Int64 = Field(default=0, alias="so")
    topic: str = Field(alias="t")

    def to_wire(self) -> dict[str, object]:
        """Return the members as of any body, the bits in Base64."""
        length = (self.bit_set.bit_length() + 7) // 8
        return {**super().to_wire(), "b": b64encode(self.bit_set.to_bytes(length, "little")).decode()}


class BatchAckMessageRequestBody(Body):
    """Acknowledgements for one broker."""

    acks: list[BatchAck] = Field(default_factory=list)
    broker_name: str | None = None


class AckMsg(Body):
    """An acknowledgement as stored in the revive topic."""

    ack_offset: Int64 = Field(default=0, alias="ao")
    broker_name: str | None = Field(default=None, alias="bn")
    consumer_group: str | None = Field(default=None, alias="c")
    pop_time: Int64 = Field(default=0, alias="pt")
    queue_id: Int32 = Field(default=0, alias="q")
    start_offset: Int64 = Field(default=0, alias="so")
    topic: str | None = Field(default=None, alias="t")


class BatchAckMsg(AckMsg):
    """Several acknowledgements of one pop."""

    ack_offset_list: list[Int64] = Field(default_factory=list, alias="aol")


class ClosedPopsBody(Body):
    """This project's own: messages that an acting replica has closed, told to the master that returns."""

    closed: list[BatchAckMsg] = Field(default_factory=list)


class OrderInfo(Body):
    """Messages of a queue in flight to a group that pops in order (consumerOrderInfo.json, OrderInfo).

    `offset_list` is the first message's offset, then the distances of the others to it. Bit n of
    `commit_offset_bit` is set if the n-th message is acknowledged. The maps are by offset.
    """

    pop_time: Int64 = 0
    invisible_time_ms: Int64 | None = Field(default=None, alias="i")
    offset_list: list[Int64] = Field(default_factory=list, alias="o")
    offset_next_visible_time: dict[Int64, Int64] | None = Field(default=None, alias="ot")
    offset_consumed_count: dict[Int64, Int32] | None = Field(default=None, alias="oc")
    last_consume_timestamp: Int64 = Field(default=0, alias="l")
    commit_offset_bit: int = Field(default=0, alias="cm")
    attempt_id: str | None = Field(default=None, alias="a")

    def queue_offsets(self) -> list[int]:
        """The offsets of the messages."""
        first = self.offset_list[0] if self.offset_list else 0
        return [first + distance if index else first for index, distance in enumerate(self.offset_list)]


class OrderInfoTable(Body):
    """The content of consumerOrderInfo.json, by `topic@group` and queue id."""

    table: dict[str, dict[Int32, OrderInfo]] = Field(default_factory=dict)


class OrderAck(AckMsg):
    """An acknowledgement with this project's own members: the progress of a group that pops in order."""

    next_offset: Int64 | None = None
    order: OrderInfo | None = None


class PopCheckPoint(Body):
    """The messages of one pop, which are redelivered unless they are acknowledged by `revive_time`.

    `queue_offset_diff` are the offsets of the messages less `start_offset`; bit n of `bit_map` is set if the
    n-th message is acknowledged.
    """

    bit_map: Int32 = Field(default=0, alias="bm")
    broker_name: str | None = Field(default=None, alias="bn")
    consumer_group: str | None = Field(default=None, alias="c")
    invisible_time_ms: Int64 = Field(default=0, alias="it")
    message_count: int = Field(default=0, alias="n", ge=-128, le=127)
    pop_time: Int64 = Field(default=0, alias="pt")
    queue_id: Int32 = Field(default=0, alias="q")
    queue_offset_diff: list[Int32] | None = Field(default=None, alias="d")
    put_again_times: str | None = Field(default=None, alias="rp")
    revive_offset: Int64 = Field(default=0, alias="ro")
    start_offset: Int64 = Field(default=0, alias="so")
    topic: str | None = Field(default=None, alias="t")

    @property
    def revive_time(self) -> int:
        return self.pop_time + self.invisible_time_ms

    def to_wire(self) -> dict[str, object]:
        """Return the members as of any body, and the revive time, which is never decoded."""
        return dict(sorted({**super().to_wire(), "reviveTime": self.revive_time}.items()))
