"""Headers of sends: requests 10, 310, 320 (and replies, 324 and 325), and their response.

These headers travel with every message, so they are slotted values and not models. Most of a header is the
same in every send of one producer to one queue: that part is a SendTarget. `send_decoding` decodes them,
`send_answers` encodes the responses.
Source: Apache RocketMQ 5.3.3, SendMessageRequestHeader, its version V2, SendMessageResponseHeader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..codes import RequestCode
from ..errors import HeaderError

# The one-letter fields of version 2 by their long names, in the order in which Apache's encoder writes them.
LONG_NAMES: Final = (
    ("producerGroup", "a"),
    ("topic", "b"),
    ("defaultTopic", "c"),
    ("defaultTopicQueueNums", "d"),
    ("queueId", "e"),
    ("sysFlag", "f"),
    ("flag", "h"),
    ("reconsumeTimes", "j"),
    ("unitMode", "k"),
    ("maxReconsumeTimes", "l"),
    ("batch", "m"),
    ("brokerName", "n"),
)
V1_CODES: Final = frozenset({int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_REPLY_MESSAGE)})
V2_KEYS: Final = tuple(short for _, short in LONG_NAMES)
V1_KEYS: Final = (*[name for name, _ in LONG_NAMES[:-1]], "bname")


@dataclass(frozen=True, slots=True, eq=False)
class SendTarget:
    """The part of a send's header that does not change from message to message.

    Targets are compared by identity, which makes them cheap keys: a broker caches by target whatever follows
    from it.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int = 0
    flag: int = 0
    reconsume_times: int = 0
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    batch: bool = False
    broker_name: str | None = None


class SendMessageRequestHeader:
    """The header of a send: its target, the message's time of birth (ms) and the message's raw properties."""

    __slots__ = ("born_timestamp_ms", "properties", "target")

    def __init__(self, target: SendTarget, born_timestamp_ms: int, properties: bytes) -> None:
        self.target = target
        self.born_timestamp_ms = born_timestamp_ms
        self.properties = properties

    def encode_v1(self) -> dict[str, str]:
        """Return the ext fields with long names (code 10)."""
        return self._encode(V1_KEYS, "bornTimestamp", "properties")

    def encode_v2(self) -> dict[str, str]:
        """Return the ext fields with one-letter names (codes 310, 320)."""
        return self._encode(V2_KEYS, "g", "i")

    def _encode(self, keys: tuple[str, ...], born_key: str, properties_key: str) -> dict[str, str]:
        fields = _target_fields(self.target, keys)
        fields[born_key] = str(self.born_timestamp_ms)
        if self.properties:
            fields[properties_key] = self.properties.decode()
        return fields


def _target_fields(target: SendTarget, keys: tuple[str, ...]) -> dict[str, str]:
    values = (
        target.producer_group,
        target.topic,
        target.default_topic,
        str(target.default_topic_queue_nums),
        str(target.queue_id),
        str(target.sys_flag),
        str(target.flag),
        str(target.reconsume_times),
        "true" if target.unit_mode else "false",
        None if target.max_reconsume_times is None else str(target.max_reconsume_times),
        "true" if target.batch else "false",
        target.broker_name,
    )
    return {key: value for key, value in zip(keys, values, strict=True) if value is not None}


@dataclass(slots=True)
class SendMessageResponseHeader:
    """The fields of a send's answer: where the message was stored."""

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> SendMessageResponseHeader:
        """Decode the header of a response. Raises HeaderError."""
        try:
            return cls(
                fields["msgId"],
                int(fields["queueId"]),
                int(fields["queueOffset"]),
                fields.get("transactionId"),
                fields.get("batchUniqId"),
                fields.get("recallHandle"),
            )
        except (KeyError, ValueError) as error:
            raise HeaderError(f"SendMessageResponseHeader: bad or missing field: {error}") from error
