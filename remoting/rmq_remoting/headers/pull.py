"""Headers of pulling: codes 11 and 361, and their response.

Source: Apache RocketMQ 5.3.3, PullMessageRequestHeader, PullMessageResponseHeader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, Final

from ..codes import FLAG_RESPONSE, VERSION_5_3_3, LanguageCode, ResponseCode
from ..command import RemotingCommand, Serialization
from ..errors import HeaderError
from ..integers import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from .problems import header_error
from .raw_fields import places_of

_REQUIRED_TEXTS: Final = ("consumerGroup", "topic")
_INTEGER_FIELDS: Final = (
    (("queueId", "maxMsgNums", "sysFlag", "maxMsgBytes", "requestSource"), INT32_MIN, INT32_MAX),
    (("queueOffset", "commitOffset", "suspendTimeoutMillis", "subVersion"), INT64_MIN, INT64_MAX),
)
_OPTIONAL_INTEGERS: Final = frozenset({"maxMsgBytes", "requestSource"})

# Values of `request_source` (RequestSource); clients themselves say nothing, or -1.
PROXY_FOR_BROADCAST: Final = 1

_FOUND: Final = int(ResponseCode.SUCCESS)


class ForbiddenType(IntEnum):
    """What it is that a refused pull may not read (ForbiddenType)."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4
    SUBSCRIPTION = 5


@dataclass(slots=True)
class PullMessageRequestHeader:
    """What a consumer asks of one queue."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int
    suspend_timeout_ms: int
    subscription: str | None
    sub_version: int
    expression_type: str | None
    max_msg_bytes: int | None
    request_source: int | None = None
    broker_name: str | None = None
    proxy_forward_client_id: str | None = None

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> PullMessageRequestHeader:
        """Read the header out of ext fields. Raises HeaderError."""
        get = fields.get
        try:
            max_bytes = get("maxMsgBytes")
            source = get("requestSource")
            header = cls(
                fields["consumerGroup"],
                fields["topic"],
                int(fields["queueId"]),
                int(fields["queueOffset"]),
                int(fields["maxMsgNums"]),
                int(fields["sysFlag"]),
                int(fields["commitOffset"]),
                int(fields["suspendTimeoutMillis"]),
                get("subscription"),
                int(fields["subVersion"]),
                get("expressionType"),
                None if max_bytes is None else int(max_bytes),
                None if source is None else int(source),
                get("bname"),
                get("proxyFrowardClientId"),
            )
        except (KeyError, ValueError) as error:
            raise _header_error(fields) from error
        if not (
            INT32_MIN <= header.queue_id <= INT32_MAX
            and INT64_MIN <= header.queue_offset <= INT64_MAX
            and INT32_MIN <= header.max_msg_nums <= INT32_MAX
            and INT32_MIN <= header.sys_flag <= INT32_MAX
            and INT64_MIN <= header.commit_offset <= INT64_MAX
            and INT64_MIN <= header.suspend_timeout_ms <= INT64_MAX
            and INT64_MIN <= header.sub_version <= INT64_MAX
            and INT32_MIN <= (header.max_msg_bytes or 0) <= INT32_MAX
            and INT32_MIN <= (header.request_source or 0) <= INT32_MAX
        ):
            raise _header_error(fields)
        return header

    def at(self, queue_offset: int, commit_offset: int) -> PullMessageRequestHeader:
        """The same of another place in the queue."""
        return PullMessageRequestHeader(
            self.consumer_group,
            self.topic,
            self.queue_id,
            queue_offset,
            self.max_msg_nums,
            self.sys_flag,
            commit_offset,
            self.suspend_timeout_ms,
            self.subscription,
            self.sub_version,
            self.expression_type,
            self.max_msg_bytes,
            self.request_source,
            self.broker_name,
            self.proxy_forward_client_id,
        )

    def encode(self) -> dict[str, str]:
        """The ext fields."""
        fields = {
            "consumerGroup": self.consumer_group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.queue_offset),
            "maxMsgNums": str(self.max_msg_nums),
            "sysFlag": str(self.sys_flag),
            "commitOffset": str(self.commit_offset),
            "suspendTimeoutMillis": str(self.suspend_timeout_ms),
            "subVersion": str(self.sub_version),
        }
        optional = (
            ("subscription", self.subscription),
            ("expressionType", self.expression_type),
            ("maxMsgBytes", self.max_msg_bytes),
            ("requestSource", self.request_source),
            ("bname", self.broker_name),
            ("proxyFrowardClientId", self.proxy_forward_client_id),
        )
        fields.update((name, str(value)) for name, value in optional if value is not None)
        return fields


# The two fields that change from pull to pull, up to the last byte of their values' lengths.
_OFFSET_MARK: Final = b"\x00\x0bqueueOffset\x00\x00\x00"
_COMMIT_MARK: Final = b"\x00\x0ccommitOffset\x00\x00\x00"
_CHANGING: Final = (b"queueOffset", b"commitOffset")
_CONSTANT_FIELDS: Final = (
    "consumerGroup",
    "topic",
    "queueId",
    "maxMsgNums",
    "sysFlag",
    "suspendTimeoutMillis",
    "subscription",
    "subVersion",
    "expressionType",
    "maxMsgBytes",
    "requestSource",
    "bname",
    "proxyFrowardClientId",
)
_SAFE_DIGITS: Final = 18  # more may be out of range
_MAX_REMEMBERED: Final = 10_000
_MAX_REMEMBERED_BYTES: Final = 1024


@dataclass(slots=True, eq=False)
class PullStream:
    """Pulls that differ in nothing but their two offsets; `header` is the first one's.

    `plan`: room for whoever answers them, to keep what follows from the rest.
    """

    header: PullMessageRequestHeader
    plan: Any = None


class PullHeaderDecoder:
    """Decodes pull headers of one server, remembering what stays the same from pull to pull.

    The memory is bounded: when it is full it starts anew.
    """

    __slots__ = ("_remembered",)

    def __init__(self) -> None:
        # By what stays the same: of a binary header all around the offsets, of any other its fields.
        self._remembered: dict[tuple[bytes | str | None, ...], PullStream] = {}

    def __len__(self) -> int:
        return len(self._remembered)

    def decode(self, command: RemotingCommand) -> tuple[PullStream, int, int]:
        """The stream that a pull is of, its queue offset and its commit offset.

        Raises HeaderError, HeaderDecodeError.
        """
        raw = command.raw_ext
        if raw is None:
            return self._decode_fields(command.ext_fields)
        offset_mark = raw.find(_OFFSET_MARK)
        offset_at = offset_mark + len(_OFFSET_MARK)
        commit_mark = raw.find(_COMMIT_MARK, offset_at)
        commit_at = commit_mark + len(_COMMIT_MARK)
        if offset_mark < 0 or commit_mark < 0 or commit_at >= len(raw):
            return _alone(PullMessageRequestHeader.decode(command.ext_fields))
        offset_end = offset_at + 1 + raw[offset_at]
        commit_end = commit_at + 1 + raw[commit_at]
        key = (raw[:offset_at], raw[offset_end:commit_at], raw[commit_end:])
        known = self._remembered.get(key)
        if known is None:
            header = PullMessageRequestHeader.decode(command.ext_fields)
            # If the cut that led here is a true one.
            if len(raw) <= _MAX_REMEMBERED_BYTES and places_of(_CHANGING, raw) == [offset_mark, commit_mark]:
                return self._remember(key, header)
            return _alone(header)
        offset, commit = raw[offset_at + 1 : offset_end], raw[commit_at + 1 : commit_end]
        if not (offset.isdigit() and commit.isdigit() and len(offset) <= _SAFE_DIGITS >= len(commit)):
            return _alone(PullMessageRequestHeader.decode(command.ext_fields))
        return known, int(offset), int(commit)

    def _decode_fields(self, fields: Mapping[str, str]) -> tuple[PullStream, int, int]:
        key = tuple(map(fields.get, _CONSTANT_FIELDS))
        known = self._remembered.get(key)
        if known is not None:
            offset, commit = fields.get("queueOffset", ""), fields.get("commitOffset", "")
            if _is_plain(offset) and _is_plain(commit):
                return known, int(offset), int(commit)
        header = PullMessageRequestHeader.decode(fields)
        if known is None and sum(map(len, filter(None, key))) <= _MAX_REMEMBERED_BYTES:
            return self._remember(key, header)
        return _alone(header)

    def _remember(
        self, key: tuple[bytes | str | None, ...], header: PullMessageRequestHeader
    ) -> tuple[PullStream, int, int]:
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        known = self._remembered[key] = PullStream(header)
        return known, header.queue_offset, header.commit_offset


def _is_plain(text: str) -> bool:
    return len(text) <= _SAFE_DIGITS and text.isascii() and text.isdigit()


def _alone(header: PullMessageRequestHeader) -> tuple[PullStream, int, int]:
    return PullStream(header), header.queue_offset, header.commit_offset


def _header_error(fields: Mapping[str, str]) -> HeaderError:
    """What is wrong with a request header that could not be read."""
    return header_error(
        "PullMessageRequestHeader", fields, _REQUIRED_TEXTS, _INTEGER_FIELDS, _OPTIONAL_INTEGERS
    )


@dataclass(slots=True)
class PullMessageResponseHeader:
    """Where the queue stands and where to go on."""

    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    offset_delta: int | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> PullMessageResponseHeader:
        """Read the header out of ext fields. Raises HeaderError."""
        try:
            optional = [
                int(text) if (text := fields.get(name)) is not None else None
                for name in ("offsetDelta", "topicSysFlag", "groupSysFlag", "forbiddenType")
            ]
            return cls(
                int(fields["suggestWhichBrokerId"]),
                int(fields["nextBeginOffset"]),
                int(fields["minOffset"]),
                int(fields["maxOffset"]),
                *optional,
            )
        except (KeyError, ValueError) as error:
            raise HeaderError(f"PullMessageResponseHeader: bad or missing field: {error}") from error

    def encode(self) -> dict[str, str]:
        """The ext fields."""
        fields = {
            "suggestWhichBrokerId": str(self.suggest_which_broker_id),
            "nextBeginOffset": str(self.next_begin_offset),
            "minOffset": str(self.min_offset),
            "maxOffset": str(self.max_offset),
        }
        optional = (
            ("offsetDelta", self.offset_delta),
            ("topicSysFlag", self.topic_sys_flag),
            ("groupSysFlag", self.group_sys_flag),
            ("forbiddenType", self.forbidden_type),
        )
        fields.update((name, str(value)) for name, value in optional if value is not None)
        return fields


_HEAD: Final = Struct(">iIhbhiiii")
# A field each: name, length of the value's text, and the text.
_BROKER_FIELD: Final = b"\x00\x14suggestWhichBrokerId\x00\x00\x00%c%b"
_OFFSET_FIELDS: Final = (
    b"\x00\x0fnextBeginOffset\x00\x00\x00%c%b"
    b"\x00\x09minOffset\x00\x00\x00%c%b"
    b"\x00\x09maxOffset\x00\x00\x00%c%b"
)
_FLAG_FIELDS: Final = b"\x00\x0ctopicSysFlag\x00\x00\x00%c%b\x00\x0cgroupSysFlag\x00\x00\x00%c%b"


class PullAnswers:
    """Answers to pulls of which only the offsets and the messages differ."""

    __slots__ = ("_fields", "_flags", "_suggested")

    def __init__(self, suggest_which_broker_id: int, topic_sys_flag: int, group_sys_flag: int) -> None:
        self._suggested = suggest_which_broker_id
        self._flags = (topic_sys_flag, group_sys_flag)
        # Numbers and their lengths: no percent sign is in what stays.
        broker, *flags = (b"%d" % value for value in (self._suggested, *self._flags))
        self._fields = (
            _BROKER_FIELD % (len(broker), broker)
            + _OFFSET_FIELDS
            + _FLAG_FIELDS % (len(flags[0]), flags[0], len(flags[1]), flags[1])
        )

    def header(self, following: int, lowest: int, highest: int) -> PullMessageResponseHeader:
        """The header alone."""
        return PullMessageResponseHeader(self._suggested, following, lowest, highest, None, *self._flags)

    def found(
        self, request: RemotingCommand, following: int, lowest: int, highest: int, body: bytes
    ) -> bytes | RemotingCommand:
        """The answer to a pull that found messages, written in one go when the request was binary."""
        if request.serialization is not Serialization.BINARY:
            header = self.header(following, lowest, highest)
            return request.response(_FOUND, ext_fields=header.encode(), body=body)
        first, second, third = b"%d" % following, b"%d" % lowest, b"%d" % highest
        fields = self._fields % (len(first), first, len(second), second, len(third), third)
        header_length = 21 + len(fields)
        head = _HEAD.pack(
            4 + header_length + len(body),
            0x01000000 | header_length,
            _FOUND,
            LanguageCode.PYTHON,
            VERSION_5_3_3,
            request.opaque,
            FLAG_RESPONSE,
            0,
            len(fields),
        )
        return b"".join((head, fields, body))
