"""Headers of pops, acknowledgements and changes of invisible times (200050, 200051, 200053); times are ms.

Every message of a popping consumer passes here, so they have codecs of their own. Source: Apache RocketMQ
5.3.3, PopMessageRequestHeader, AckMessageRequestHeader and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..errors import HeaderError
from ..integer_bounds import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from .optional_fields import with_optional
from .problems import IntegerFields, header_error

_GROUP_AND_TOPIC: Final = ("consumerGroup", "topic")
_WITH_RECEIPT: Final = (*_GROUP_AND_TOPIC, "extraInfo")
_POP_INT32: Final = ("queueId", "maxMsgNums", "initMode")
_POP_INT64: Final = ("invisibleTime", "pollTime", "bornTime")
_POP_INTEGERS: Final[IntegerFields] = (
    (_POP_INT32, INT32_MIN, INT32_MAX),
    (_POP_INT64, INT64_MIN, INT64_MAX),
)
_ACK_INTEGERS: Final[IntegerFields] = (
    (("queueId",), INT32_MIN, INT32_MAX),
    (("offset",), INT64_MIN, INT64_MAX),
)
_CHANGE_INTEGERS: Final[IntegerFields] = (
    (("queueId",), INT32_MIN, INT32_MAX),
    (("offset", "invisibleTime"), INT64_MIN, INT64_MAX),
)
_ANSWER_INT32: Final = ("reviveQid",)
_ANSWER_INT64: Final = ("invisibleTime", "popTime", "restNum")
_ANSWER_INTEGERS: Final[IntegerFields] = (
    (_ANSWER_INT32, INT32_MIN, INT32_MAX),
    (_ANSWER_INT64, INT64_MIN, INT64_MAX),
)


@dataclass(slots=True, kw_only=True)
class PopMessageRequestHeader:
    """200050; queue -1 means any; `init_mode` 0 starts a new group at the oldest message, 1 at the newest."""

    consumer_group: str
    topic: str
    queue_id: int = 0
    max_msg_nums: int = 0
    invisible_time_ms: int = 0
    poll_time_ms: int = 0
    born_time: int = 0
    init_mode: int = 0
    expression_type: str | None = None
    expression: str | None = None
    order: bool = False
    attempt_id: str | None = None
    broker_name: str | None = None

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> PopMessageRequestHeader:
        """Decode the header from ext fields. Raises HeaderError."""
        get = fields.get
        try:
            header = cls(
                consumer_group=fields["consumerGroup"],
                topic=fields["topic"],
                queue_id=int(get("queueId", 0)),
                max_msg_nums=int(get("maxMsgNums", 0)),
                invisible_time_ms=int(get("invisibleTime", 0)),
                poll_time_ms=int(get("pollTime", 0)),
                born_time=int(get("bornTime", 0)),
                init_mode=int(get("initMode", 0)),
                expression_type=get("expType"),
                expression=get("exp"),
                order=get("order", "false").lower() == "true",
                attempt_id=get("attemptId"),
                broker_name=get("bname"),
            )
        except (KeyError, ValueError) as error:
            raise _pop_error(fields) from error
        if not (
            INT32_MIN <= header.queue_id <= INT32_MAX
            and INT32_MIN <= header.max_msg_nums <= INT32_MAX
            and INT64_MIN <= header.invisible_time_ms <= INT64_MAX
            and INT64_MIN <= header.poll_time_ms <= INT64_MAX
            and INT64_MIN <= header.born_time <= INT64_MAX
            and INT32_MIN <= header.init_mode <= INT32_MAX
        ):
            raise _pop_error(fields)
        return header

    def encode(self) -> dict[str, str]:
        """Encode the ext fields."""
        fields = {
            "consumerGroup": self.consumer_group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "maxMsgNums": str(self.max_msg_nums),
            "invisibleTime": str(self.invisible_time_ms),
            "pollTime": str(self.poll_time_ms),
            "bornTime": str(self.born_time),
            "initMode": str(self.init_mode),
            "order": "true" if self.order else "false",
        }
        return with_optional(
            fields,
            expType=self.expression_type,
            exp=self.expression,
            attemptId=self.attempt_id,
            bname=self.broker_name,
        )


@dataclass(slots=True, kw_only=True)
class PopMessageResponseHeader:
    """The response to a pop; clients build the messages' receipts from the lists in the infos."""

    invisible_time_ms: int = 0
    pop_time: int = 0
    revive_queue_id: int = 0
    rest_num: int = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> PopMessageResponseHeader:
        """Decode the header from ext fields. Raises HeaderError."""
        get = fields.get
        try:
            return cls(
                invisible_time_ms=int(get("invisibleTime", 0)),
                pop_time=int(get("popTime", 0)),
                revive_queue_id=int(get("reviveQid", 0)),
                rest_num=int(get("restNum", 0)),
                start_offset_info=get("startOffsetInfo"),
                msg_offset_info=get("msgOffsetInfo"),
                order_count_info=get("orderCountInfo"),
            )
        except ValueError as error:
            raise _answer_error("PopMessageResponseHeader", fields) from error

    def encode(self) -> dict[str, str]:
        """Encode the ext fields."""
        fields = {
            "invisibleTime": str(self.invisible_time_ms),
            "popTime": str(self.pop_time),
            "reviveQid": str(self.revive_queue_id),
            "restNum": str(self.rest_num),
        }
        return with_optional(
            fields,
            startOffsetInfo=self.start_offset_info,
            msgOffsetInfo=self.msg_offset_info,
            orderCountInfo=self.order_count_info,
        )


@dataclass(slots=True, init=False)
class AckMessageRequestHeader:
    """200051; `extra_info` is the receipt."""

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    broker_name: str | None

    # Written out, as every acknowledgement calls it: a compiled class keeps a dataclass's own as interpreted
    # code.
    def __init__(
        self,
        *,
        consumer_group: str,
        topic: str,
        queue_id: int,
        extra_info: str,
        offset: int,
        broker_name: str | None = None,
    ) -> None:
        self.consumer_group = consumer_group
        self.topic = topic
        self.queue_id = queue_id
        self.extra_info = extra_info
        self.offset = offset
        self.broker_name = broker_name

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> AckMessageRequestHeader:
        """Decode the header from ext fields. Raises HeaderError."""
        try:
            header = AckMessageRequestHeader(
                consumer_group=fields["consumerGroup"],
                topic=fields["topic"],
                queue_id=int(fields["queueId"]),
                extra_info=fields["extraInfo"],
                offset=int(fields["offset"]),
                broker_name=fields.get("bname"),
            )
        except (KeyError, ValueError) as error:
            raise header_error(cls.__name__, fields, _WITH_RECEIPT, _ACK_INTEGERS) from error
        if not (INT32_MIN <= header.queue_id <= INT32_MAX and INT64_MIN <= header.offset <= INT64_MAX):
            raise header_error(cls.__name__, fields, _WITH_RECEIPT, _ACK_INTEGERS)
        return header

    def encode(self) -> dict[str, str]:
        """Encode the ext fields."""
        fields = {
            "consumerGroup": self.consumer_group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "extraInfo": self.extra_info,
            "offset": str(self.offset),
        }
        return with_optional(fields, bname=self.broker_name)


@dataclass(slots=True, kw_only=True)
class ChangeInvisibleTimeRequestHeader:
    """200053; `extra_info` is the receipt."""

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    invisible_time_ms: int
    broker_name: str | None = None

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> ChangeInvisibleTimeRequestHeader:
        """Decode the header from ext fields. Raises HeaderError."""
        try:
            header = cls(
                consumer_group=fields["consumerGroup"],
                topic=fields["topic"],
                queue_id=int(fields["queueId"]),
                extra_info=fields["extraInfo"],
                offset=int(fields["offset"]),
                invisible_time_ms=int(fields["invisibleTime"]),
                broker_name=fields.get("bname"),
            )
        except (KeyError, ValueError) as error:
            raise header_error(cls.__name__, fields, _WITH_RECEIPT, _CHANGE_INTEGERS) from error
        if not (
            INT32_MIN <= header.queue_id <= INT32_MAX
            and INT64_MIN <= header.offset <= INT64_MAX
            and INT64_MIN <= header.invisible_time_ms <= INT64_MAX
        ):
            raise header_error(cls.__name__, fields, _WITH_RECEIPT, _CHANGE_INTEGERS)
        return header

    def encode(self) -> dict[str, str]:
        """Encode the ext fields."""
        fields = {
            "consumerGroup": self.consumer_group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "extraInfo": self.extra_info,
            "offset": str(self.offset),
            "invisibleTime": str(self.invisible_time_ms),
        }
        return with_optional(fields, bname=self.broker_name)


@dataclass(slots=True, kw_only=True)
class ChangeInvisibleTimeResponseHeader:
    """Parts of the new receipt."""

    invisible_time_ms: int = 0
    pop_time: int = 0
    revive_queue_id: int = 0

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> ChangeInvisibleTimeResponseHeader:
        """Decode the header from ext fields. Raises HeaderError."""
        get = fields.get
        try:
            return cls(
                invisible_time_ms=int(get("invisibleTime", 0)),
                pop_time=int(get("popTime", 0)),
                revive_queue_id=int(get("reviveQid", 0)),
            )
        except ValueError as error:
            raise _answer_error("ChangeInvisibleTimeResponseHeader", fields) from error

    def encode(self) -> dict[str, str]:
        """Encode the ext fields."""
        return {
            "invisibleTime": str(self.invisible_time_ms),
            "popTime": str(self.pop_time),
            "reviveQid": str(self.revive_queue_id),
        }


def _pop_error(fields: Mapping[str, str]) -> HeaderError:
    optional = (*_POP_INT32, *_POP_INT64)
    return header_error("PopMessageRequestHeader", fields, _GROUP_AND_TOPIC, _POP_INTEGERS, optional)


def _answer_error(name: str, fields: Mapping[str, str]) -> HeaderError:
    return header_error(name, fields, (), _ANSWER_INTEGERS, (*_ANSWER_INT32, *_ANSWER_INT64))
