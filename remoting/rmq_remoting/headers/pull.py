"""Headers of pulls (codes 11 and 361) and of their responses.

Source: Apache RocketMQ 5.3.3, PullMessageRequestHeader, PullMessageResponseHeader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, Final, Generic, TypeVar

from ..bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache
from ..codes import FLAG_RESPONSE, VERSION_5_3_3, LanguageCode, ResponseCode
from ..command import RemotingCommand, Serialization
from ..errors import HeaderError
from ..integer_bounds import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from .prepared import JSON_HEAD, JSON_TAIL, json_frame
from .problems import header_error
from .raw_fields import places_of, stand_once

_REQUIRED_TEXTS: Final = ("consumerGroup", "topic")
_INTEGER_FIELDS: Final = (
    (("queueId", "maxMsgNums", "sysFlag", "maxMsgBytes", "requestSource"), INT32_MIN, INT32_MAX),
    (("queueOffset", "commitOffset", "suspendTimeoutMillis", "subVersion"), INT64_MIN, INT64_MAX),
)
_OPTIONAL_INTEGERS: Final = frozenset({"maxMsgBytes", "requestSource"})

# Value of `request_source` (RequestSource); clients leave the field out, or send -1.
PROXY_FOR_BROADCAST: Final = 1

_FOUND: Final = int(ResponseCode.SUCCESS)


class ForbiddenType(IntEnum):
    """Which permission a refused pull lacks (ForbiddenType)."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4
    SUBSCRIPTION = 5


@dataclass(slots=True)
class PullMessageRequestHeader:
    """A consumer's request for messages of one queue.

    `logical`: false in a request about a static topic that names a physical queue.
    """

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
    logical: bool | None = None

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> PullMessageRequestHeader:
        """Read the header out of ext fields. Raises HeaderError."""
        get = fields.get
        try:
            max_bytes = get("maxMsgBytes")
            source = get("requestSource")
            logical = get("lo")
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
                None if logical is None else logical.lower() == "true",
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
        """Return the same header with other offsets."""
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
            self.logical,
        )

    def encode(self) -> dict[str, str]:
        """Return the ext fields."""
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
            ("lo", None if self.logical is None else str(self.logical).lower()),
        )
        fields.update((name, str(value)) for name, value in optional if value is not None)
        return fields


# The two fields that change from pull to pull: each up to the last byte of its value's length.
_OFFSET_MARK: Final = b"\x00\x0bqueueOffset\x00\x00\x00"
_COMMIT_MARK: Final = b"\x00\x0ccommitOffset\x00\x00\x00"
_CHANGING: Final = (b"queueOffset", b"commitOffset")
# The same in a JSON header. In a text a quotation mark is escaped, so no value holds these bytes.
_JSON_OFFSET_MARK: Final = b'"queueOffset":"'
_JSON_COMMIT_MARK: Final = b'"commitOffset":"'
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
    "lo",
)
_SAFE_DIGITS: Final = 18  # a number with more digits may be out of range
_MAX_STREAMS: Final = 10_000
_MAX_STREAMS_BYTES: Final = 32 * 1024 * 1024
_MAX_KEY_BYTES: Final = 1024
# Estimate for a header and what its owner keeps with it.
_STREAM_BYTES: Final = 1024 + ENTRY_OVERHEAD_BYTES

_Key = tuple[bytes | str | None, ...]
Stream = TypeVar("Stream")


class PullHeaderDecoder(Generic[Stream]):
    """Decodes pull headers of one server, and keeps the decoded part that is the same from pull to pull.

    Pulls that differ in their two offsets alone are a stream. Its first header is decoded and given to
    `new_stream`. Each later pull gets the stream that this has returned, and has only its offsets decoded.
    """

    __slots__ = ("_new_stream", "_streams", "caches")

    def __init__(self, new_stream: Callable[[PullMessageRequestHeader], Stream]) -> None:
        self._new_stream = new_stream
        # The key is the bytes around the offsets, or the other fields if the ext fields have been decoded.
        self._streams: BoundedCache[_Key, Stream] = BoundedCache(
            "pull_headers",
            max_entries=_MAX_STREAMS,
            max_bytes=_MAX_STREAMS_BYTES,
            size_of=_size_of,
            max_entry_bytes=_MAX_KEY_BYTES + _STREAM_BYTES,
        )
        self.caches: tuple[BoundedCache[Any, Any], ...] = (self._streams,)

    def decode(self, command: RemotingCommand) -> tuple[Stream, int, int]:
        """Return the stream of a pull, its queue offset and its commit offset.

        Raises HeaderError, HeaderDecodeError.
        """
        raw = command.unread_raw_ext
        if raw is None:
            return self._decode_fields(command.ext_fields)
        if command.serialization is Serialization.BINARY:
            return self._decode_binary(command, raw)
        return self._decode_json(command, raw)

    def _decode_binary(self, command: RemotingCommand, raw: bytes) -> tuple[Stream, int, int]:
        offset_mark = raw.find(_OFFSET_MARK)
        offset_at = offset_mark + len(_OFFSET_MARK)
        commit_mark = raw.find(_COMMIT_MARK, offset_at)
        commit_at = commit_mark + len(_COMMIT_MARK)
        if offset_mark < 0 or commit_mark < 0 or commit_at >= len(raw):
            return self._decode_alone(command.ext_fields)
        offset_end = offset_at + 1 + raw[offset_at]
        commit_end = commit_at + 1 + raw[commit_at]
        if offset_end > commit_at:
            return self._decode_alone(command.ext_fields)
        key = (raw[:offset_at], raw[offset_end:commit_at], raw[commit_end:])
        stream = self._streams.get(key)
        if stream is None:
            header = PullMessageRequestHeader.decode(command.ext_fields)
            stream = self._new_stream(header)
            # The marks may stand inside a value: keep the key only if they are the fields themselves.
            if places_of(_CHANGING, raw) == [offset_mark, commit_mark]:
                self._streams.put(key, stream)
            return stream, header.queue_offset, header.commit_offset
        offset, commit = raw[offset_at + 1 : offset_end], raw[commit_at + 1 : commit_end]
        if not (offset.isdigit() and commit.isdigit() and len(offset) <= _SAFE_DIGITS >= len(commit)):
            return self._decode_alone(command.ext_fields)
        return stream, int(offset), int(commit)

    def _decode_json(self, command: RemotingCommand, raw: bytes) -> tuple[Stream, int, int]:
        offset_at = raw.find(_JSON_OFFSET_MARK) + len(_JSON_OFFSET_MARK)
        commit_at = raw.find(_JSON_COMMIT_MARK) + len(_JSON_COMMIT_MARK)
        offset_end, commit_end = raw.find(b'"', offset_at), raw.find(b'"', commit_at)
        if (
            offset_at < len(_JSON_OFFSET_MARK)
            or commit_at < len(_JSON_COMMIT_MARK)
            or offset_end < 0
            or commit_end < 0
        ):
            return self._decode_fields(command.ext_fields)
        if offset_at < commit_at:
            key = (raw[:offset_at], raw[offset_end:commit_at], raw[commit_end:])
        else:
            key = (raw[:commit_at], raw[commit_end:offset_at], raw[offset_end:])
        stream = self._streams.get(key)
        if stream is None:
            found = self._decode_fields(command.ext_fields)
            if stand_once((_JSON_OFFSET_MARK, _JSON_COMMIT_MARK), raw):
                self._streams.discard(_fields_key(command.ext_fields))
                self._streams.put(key, found[0])
            return found
        offset, commit = raw[offset_at:offset_end], raw[commit_at:commit_end]
        if not (offset.isdigit() and commit.isdigit() and len(offset) <= _SAFE_DIGITS >= len(commit)):
            return self._decode_alone(command.ext_fields)
        return stream, int(offset), int(commit)

    def _decode_fields(self, fields: Mapping[str, str]) -> tuple[Stream, int, int]:
        key = _fields_key(fields)
        stream = self._streams.get(key)
        if stream is None:
            header = PullMessageRequestHeader.decode(fields)
            stream = self._streams.put(key, self._new_stream(header))
            return stream, header.queue_offset, header.commit_offset
        offset, commit = fields.get("queueOffset", ""), fields.get("commitOffset", "")
        if not (_is_plain(offset) and _is_plain(commit)):
            return self._decode_alone(fields)
        return stream, int(offset), int(commit)

    def _decode_alone(self, fields: Mapping[str, str]) -> tuple[Stream, int, int]:
        """Decode a pull whose stream cannot be kept, or whose offsets are out of the ordinary."""
        header = PullMessageRequestHeader.decode(fields)
        return self._new_stream(header), header.queue_offset, header.commit_offset


def _size_of(key: _Key, stream: object) -> int:
    return _STREAM_BYTES + sum(map(len, filter(None, key)))


def _fields_key(fields: Mapping[str, str]) -> _Key:
    return tuple(map(fields.get, _CONSTANT_FIELDS))


def _is_plain(text: str) -> bool:
    return len(text) <= _SAFE_DIGITS and text.isascii() and text.isdigit()


def _header_error(fields: Mapping[str, str]) -> HeaderError:
    """Return the error of a request header that cannot be decoded."""
    return header_error(
        "PullMessageRequestHeader", fields, _REQUIRED_TEXTS, _INTEGER_FIELDS, _OPTIONAL_INTEGERS
    )


@dataclass(slots=True)
class PullMessageResponseHeader:
    """The bounds of the queue, and the offset of the next pull."""

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
        """Return the ext fields."""
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
# Encoded fields: name, length of the value's text, and the text.
_BROKER_FIELD: Final = b"\x00\x14suggestWhichBrokerId\x00\x00\x00%c%b"
_OFFSET_FIELDS: Final = (
    b"\x00\x0fnextBeginOffset\x00\x00\x00%c%b"
    b"\x00\x09minOffset\x00\x00\x00%c%b"
    b"\x00\x09maxOffset\x00\x00\x00%c%b"
)
_FLAG_FIELDS: Final = b"\x00\x0ctopicSysFlag\x00\x00\x00%c%b\x00\x0cgroupSysFlag\x00\x00\x00%c%b"


_JSON_FIELDS: Final = (
    b'"suggestWhichBrokerId":"%d","nextBeginOffset":"%%d","minOffset":"%%d","maxOffset":"%%d",'
    b'"topicSysFlag":"%d","groupSysFlag":"%d"'
)


class PullAnswers:
    """Encodes responses to pulls of one topic and group: they differ in offsets and messages alone."""

    __slots__ = ("_fields", "_flags", "_json_header", "_suggested")

    def __init__(self, suggest_which_broker_id: int, topic_sys_flag: int, group_sys_flag: int) -> None:
        self._suggested = suggest_which_broker_id
        self._flags = (topic_sys_flag, group_sys_flag)
        # All values are numbers, so the template holds no percent signs but its own.
        broker, *flags = [b"%d" % value for value in (self._suggested, *self._flags)]
        self._fields = (
            _BROKER_FIELD % (len(broker), broker)
            + _OFFSET_FIELDS
            + _FLAG_FIELDS % (len(flags[0]), flags[0], len(flags[1]), flags[1])
        )
        self._json_header = JSON_HEAD + _JSON_FIELDS % (self._suggested, *self._flags) + JSON_TAIL

    def header(self, following: int, lowest: int, highest: int) -> PullMessageResponseHeader:
        """Return the header of a response without messages."""
        return PullMessageResponseHeader(self._suggested, following, lowest, highest, None, *self._flags)

    def found(
        self, request: RemotingCommand, following: int, lowest: int, highest: int, body: bytes
    ) -> bytes:
        """Return the response with messages, encoded in the request's serialization."""
        if request.serialization is not Serialization.BINARY:
            return json_frame(self._json_header % (following, lowest, highest, request.opaque), body)
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
