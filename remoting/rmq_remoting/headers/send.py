"""Headers of sends: requests 10, 310, 320 (and replies, 324 and 325), and their response.

These headers travel with every message, so they are slotted values and not models. Most of a header is the
same in every send of one producer to one queue: that part is a SendTarget. A target is decoded once and then
found by the bytes that it was decoded from, so that a send costs two searches, one lookup and one number.
Source: Apache RocketMQ 5.3.3, SendMessageRequestHeader, its version V2, SendMessageResponseHeader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from ..bounded_cache import BoundedCache
from ..codes import FLAG_RESPONSE, VERSION_5_3_3, LanguageCode, RequestCode, ResponseCode
from ..command import RemotingCommand, Serialization
from ..errors import HeaderError, shown
from .raw_fields import places_of

_INT32: Final = Struct(">i")
_unpack_int32 = _INT32.unpack_from

# The one-letter fields of version 2 by their long names, in the order in which Apache's encoder writes them.
_LONG_NAMES: Final = (
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
_V1_CODES: Final = frozenset({int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_REPLY_MESSAGE)})
_V2_KEYS: Final = tuple(short for _, short in _LONG_NAMES)
_V1_KEYS: Final = (*(name for name, _ in _LONG_NAMES[:-1]), "bname")


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
        return self._encode(_V1_KEYS, "bornTimestamp", "properties")

    def encode_v2(self) -> dict[str, str]:
        """Return the ext fields with one-letter names (codes 310, 320)."""
        return self._encode(_V2_KEYS, "g", "i")

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


# A binary header of version 2 is cut around the two values that change from message to message. Another value
# may hold the same bytes as a mark, which would move the cut: `_learn` caches only cuts at these two fields.
_BORN_MARK: Final = b"\x00\x01g\x00\x00\x00\x0d"
_BORN_MARK_LENGTH: Final = len(_BORN_MARK)
_BORN_LENGTH: Final = 13
_PROPERTIES_MARK: Final = b"\x00\x01i"
_PROPERTIES_MARK_LENGTH: Final = len(_PROPERTIES_MARK)
# Names have at most 255 characters, so a longer target is no producer's and is not cached.
_MAX_TARGET_BYTES: Final = 4096
# A cached target without its texts: the value, the dictionary's slot, the key.
_TARGET_OVERHEAD_BYTES: Final = 1024

_FieldsKey = tuple[str | None, ...]


class SendHeaderDecoder:
    """Decodes the headers of sends, with two bounded caches of their targets.

    The first finds a target by the bytes of a binary header without the two values that change. The second
    finds it by its fields, and makes both versions and serializations of a header share their target.
    """

    __slots__ = ("_by_bytes", "_by_fields", "_cached_by_bytes", "_cached_by_fields")

    def __init__(self, max_bytes: int = 64 * 1024 * 1024) -> None:
        """`max_bytes` is the bound of both caches together."""
        self._by_bytes: BoundedCache[bytes, SendTarget] = BoundedCache(
            "send_targets_by_bytes",
            max_entries=max_bytes // _TARGET_OVERHEAD_BYTES,
            max_bytes=max_bytes // 2,
            size_of=_bytes_key_size,
            max_entry_bytes=_MAX_TARGET_BYTES + _TARGET_OVERHEAD_BYTES,
        )
        self._by_fields: BoundedCache[_FieldsKey, SendTarget] = BoundedCache(
            "send_targets_by_fields",
            max_entries=max_bytes // _TARGET_OVERHEAD_BYTES,
            max_bytes=max_bytes // 2,
            size_of=_fields_key_size,
            max_entry_bytes=_MAX_TARGET_BYTES + _TARGET_OVERHEAD_BYTES,
        )
        self._cached_by_bytes = self._by_bytes.get
        self._cached_by_fields = self._by_fields.get

    @property
    def caches(self) -> tuple[BoundedCache[Any, SendTarget], ...]:
        """The caches, for their metrics."""
        return (self._by_bytes, self._by_fields)

    def decode(self, command: RemotingCommand) -> SendMessageRequestHeader:
        """Decode the header of a send. Raises HeaderError, HeaderDecodeError."""
        raw = command.raw_ext
        if raw is None or command.code in _V1_CODES:
            return self._from_fields(command)
        born_mark = raw.find(_BORN_MARK)
        born_at = born_mark + _BORN_MARK_LENGTH
        born_end = born_at + _BORN_LENGTH
        properties_at = raw.find(_PROPERTIES_MARK, born_end) + _PROPERTIES_MARK_LENGTH + 4
        if born_mark < 0 or not born_end < properties_at <= len(raw):
            return self._from_fields(command)
        (size,) = _unpack_int32(raw, properties_at - 4)
        end = properties_at + size
        # The marks tell where the three parts end, so different headers have different keys.
        key = raw[:born_at] + raw[born_end : properties_at - 4] + raw[end:]
        target = self._cached_by_bytes(key)
        if target is None or not 0 <= size <= len(raw) - properties_at:
            return self._learn(command, raw, key, born_mark, properties_at)
        born, properties = raw[born_at:born_end], raw[properties_at:end]
        if not (born.isdigit() and (properties.isascii() or _is_utf8(properties))):
            return self._from_fields(command)
        return SendMessageRequestHeader(target, int(born), properties)

    def _learn(
        self, command: RemotingCommand, raw: bytes, key: bytes, born_mark: int, properties_at: int
    ) -> SendMessageRequestHeader:
        """Decode a header in full, and cache its target if the cut that made `key` is at the two fields."""
        header = self._from_fields(command)
        properties_mark = properties_at - 4 - _PROPERTIES_MARK_LENGTH
        if places_of((b"g", b"i"), raw) == [born_mark, properties_mark]:
            self._by_bytes.put(key, header.target)
        return header

    def _from_fields(self, command: RemotingCommand) -> SendMessageRequestHeader:
        fields = command.ext_fields
        if command.code in _V1_CODES:
            keys, born_key, properties_key = _V1_KEYS, "bornTimestamp", "properties"
        else:
            keys, born_key, properties_key = _V2_KEYS, "g", "i"
        values = tuple(map(fields.get, keys))
        target = self._cached_by_fields(values)
        if target is None:
            target = self._by_fields.put(values, _parse_target(values, keys))
        try:
            born_timestamp_ms = int(fields[born_key])
        except (KeyError, ValueError) as error:
            raise HeaderError(
                f"SendMessageRequestHeader: bornTimestamp ({born_key}) must be a number of milliseconds, "
                f"got {shown(fields.get(born_key))}"
            ) from error
        if not -(1 << 63) <= born_timestamp_ms < 1 << 63:
            raise HeaderError(
                f"SendMessageRequestHeader: bornTimestamp {shown(born_timestamp_ms)} is out of range"
            )
        properties = fields.get(properties_key)
        try:
            raw_properties = properties.encode() if properties else b""
        except UnicodeEncodeError as error:
            raise HeaderError("SendMessageRequestHeader: properties hold a lone surrogate") from error
        return SendMessageRequestHeader(target, born_timestamp_ms, raw_properties)


def _bytes_key_size(key: bytes, target: SendTarget) -> int:
    return _TARGET_OVERHEAD_BYTES + len(key)


def _fields_key_size(key: _FieldsKey, target: SendTarget) -> int:
    """Estimate the size of a key; a text takes up to four bytes a character."""
    sizes = (len(text) if text.isascii() else 4 * len(text) for text in key if text is not None)
    return _TARGET_OVERHEAD_BYTES + sum(sizes)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parse_target(values: tuple[str | None, ...], keys: tuple[str, ...]) -> SendTarget:
    for index in range(7):
        if values[index] is None:
            raise HeaderError(
                f"SendMessageRequestHeader: required field {_LONG_NAMES[index][0]} ({keys[index]}) is missing"
            )
    group, topic, default_topic, default_nums, queue, sys_flag, flag, times, unit, maximum, batch, name = (
        values
    )
    return SendTarget(
        producer_group=group or "",
        topic=topic or "",
        default_topic=default_topic or "",
        default_topic_queue_nums=_int(default_nums, "defaultTopicQueueNums"),
        queue_id=_int(queue, "queueId"),
        sys_flag=_int(sys_flag, "sysFlag"),
        flag=_int(flag, "flag"),
        reconsume_times=_int(times, "reconsumeTimes") if times is not None else 0,
        unit_mode=_bool(unit),
        max_reconsume_times=_int(maximum, "maxReconsumeTimes") if maximum is not None else None,
        batch=_bool(batch),
        broker_name=name,
    )


def _int(text: str | None, field: str) -> int:
    try:
        value = int(text or "")
    except ValueError:
        value = 1 << 31
    if not -(1 << 31) <= value < 1 << 31:
        raise HeaderError(f"SendMessageRequestHeader: {field} must be a 32-bit integer, got {shown(text)}")
    return value


def _bool(text: str | None) -> bool:
    return text is not None and text.lower() == "true"  # as Java's Boolean.parseBoolean


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


# The constant parts of a binary response: code, language and version before the opaque, flag and no remark
# after it.
_RESPONSE_HEAD: Final = Struct(">hbhiii").pack(
    ResponseCode.SUCCESS, LanguageCode.PYTHON, VERSION_5_3_3, 0, FLAG_RESPONSE, 0
)
_HEAD_BEFORE_OPAQUE: Final = _RESPONSE_HEAD[:5]
_HEAD_AFTER_OPAQUE: Final = _RESPONSE_HEAD[9:]
_EMPTY_EXT_HEADER_LENGTH: Final = len(_RESPONSE_HEAD) + 4
# The lengths of frame and header, the head around the opaque, the ext fields' length, the message id's name
# and length.
_pack_until_msg_id = Struct(f">iI5si{len(_HEAD_AFTER_OPAQUE)}si7si").pack
_pack_int32 = _INT32.pack
# Bytes of the message id and the queue offset besides their values and the offset's name.
_MSG_ID_AND_OFFSET_BYTES: Final = 15
_NO_FIELDS: Final[Mapping[str, str]] = {}
_BINARY: Final = Serialization.BINARY


def _ext(name: str, value: str) -> bytes:
    name_bytes, value_bytes = name.encode(), value.encode()
    return b"%b%b%b%b" % (
        len(name_bytes).to_bytes(2, "big"),
        name_bytes,
        len(value_bytes).to_bytes(4, "big"),
        value_bytes,
    )


# The place of the code in a binary frame: after the lengths of frame and header.
_CODE_AT: Final = 8


class SendResponseEncoder:
    """Encodes the answers to sends; region and trace switch are the same in all of them."""

    def __init__(self, region_id: str, trace_on: bool) -> None:
        self._constant_fields = {"MSG_REGION": region_id, "TRACE_ON": "true" if trace_on else "false"}
        self._constant_ext = b"".join(_ext(name, value) for name, value in self._constant_fields.items())
        self._by_queue: dict[int, bytes] = {}

    @property
    def constant_fields(self) -> dict[str, str]:
        """The ext fields of every answer to a send, refusals included."""
        return self._constant_fields

    def encode(
        self,
        request: RemotingCommand,
        msg_id: bytes,
        queue_id: int,
        queue_offset: int,
        transaction_id: bytes = b"",
        further_fields: Mapping[str, str] = _NO_FIELDS,
    ) -> bytes | RemotingCommand:
        """Encode the answer to a send that was stored: a frame, or a command where the request was JSON.

        `msg_id` is the offset message id in ASCII, or those of a batch separated by commas. `transaction_id`
        is the message's unique key.
        """
        if request.serialization is not _BINARY:
            fields = self.fields(msg_id, queue_id, queue_offset, transaction_id)
            fields.update(further_fields)
            return request.response(ResponseCode.SUCCESS, ext_fields=fields)
        middle = self._by_queue.get(queue_id)
        if middle is None:
            middle = self._by_queue[queue_id] = _ext("queueId", str(queue_id)) + b"\x00\x0bqueueOffset"
        offset = b"%d" % queue_offset
        last = self._constant_ext
        if further_fields:
            last += b"".join(_ext(name, value) for name, value in further_fields.items())
        ext_length = len(msg_id) + len(middle) + len(offset) + len(last) + _MSG_ID_AND_OFFSET_BYTES
        transaction_head = b""
        if transaction_id:
            transaction_head = b"\x00\x0dtransactionId" + _pack_int32(len(transaction_id))
            ext_length += len(transaction_head) + len(transaction_id)
        header_length = _EMPTY_EXT_HEADER_LENGTH + ext_length
        return b"".join(
            (
                _pack_until_msg_id(
                    header_length + 4,
                    0x01000000 | header_length,
                    _HEAD_BEFORE_OPAQUE,
                    request.opaque,
                    _HEAD_AFTER_OPAQUE,
                    ext_length,
                    b"\x00\x05msgId",
                    len(msg_id),
                ),
                msg_id,
                middle,
                _pack_int32(len(offset)),
                offset,
                transaction_head,
                transaction_id,
                last,
            )
        )

    def fields(
        self, msg_id: bytes, queue_id: int, queue_offset: int, transaction_id: bytes
    ) -> dict[str, str]:
        """Return the ext fields of such an answer."""
        return {
            "msgId": msg_id.decode(),
            "queueId": str(queue_id),
            "queueOffset": str(queue_offset),
            **({"transactionId": transaction_id.decode()} if transaction_id else {}),
            **self._constant_fields,
        }

    @staticmethod
    def with_code(answer: bytes | RemotingCommand, code: int) -> bytes | RemotingCommand:
        """Return an answer made by `encode` with another response code.

        A message may be stored but not be as durable as was asked for. A command is changed in place.
        """
        if isinstance(answer, RemotingCommand):
            answer.code = code
            return answer
        return answer[:_CODE_AT] + code.to_bytes(2, "big") + answer[_CODE_AT + 2 :]
