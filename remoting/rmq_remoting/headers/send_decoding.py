"""Decoding the headers of sends, which share most of their bytes.

A header is cut around the two values that change from message to message. The rest is the key of its target,
which is decoded once. A send then costs a few searches, one lookup and one number. A header that cannot be
cut is decoded from its map, with the same result.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import orjson

from ..bounded_cache import BoundedCache
from ..command import RemotingCommand, Serialization
from ..errors import HeaderError, shown
from .raw_fields import places_of, stand_once
from .send import LONG_NAMES, V1_CODES, V1_KEYS, V2_KEYS, SendMessageRequestHeader, SendTarget

_unpack_int32 = Struct(">i").unpack_from
_BINARY: Final = Serialization.BINARY

# Marks of the two values in a binary header of version 2. Another value may hold the same bytes as a mark,
# which would move the cut: `_learn_binary` caches only cuts at these two fields.
_BORN_MARK: Final = b"\x00\x01g\x00\x00\x00\x0d"
_BORN_MARK_LENGTH: Final = len(_BORN_MARK)
_BORN_LENGTH: Final = 13
_PROPERTIES_MARK: Final = b"\x00\x01i"
_PROPERTIES_MARK_LENGTH: Final = len(_PROPERTIES_MARK)
# The same in a JSON header. In a text a quotation mark is escaped, so no value holds these bytes.
_JSON_BORN_MARK: Final = b'"g":"'
_JSON_PROPERTIES_MARK: Final = b'"i":"'
_JSON_MARK_LENGTH: Final = len(_JSON_BORN_MARK)
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
        raw = command.unread_raw_ext
        if raw is None or command.code in V1_CODES:
            return self._from_fields(command)
        if command.serialization is _BINARY:
            return self._decode_binary(command, raw)
        return self._decode_json(command, raw)

    def _decode_binary(self, command: RemotingCommand, raw: bytes) -> SendMessageRequestHeader:
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
            return self._learn_binary(command, raw, key, born_mark, properties_at)
        born, properties = raw[born_at:born_end], raw[properties_at:end]
        if not (born.isdigit() and (properties.isascii() or _is_utf8(properties))):
            return self._from_fields(command)
        return SendMessageRequestHeader(target, int(born), properties)

    def _learn_binary(
        self, command: RemotingCommand, raw: bytes, key: bytes, born_mark: int, properties_at: int
    ) -> SendMessageRequestHeader:
        """Decode a header in full, and cache its target if the cut that made `key` is at the two fields."""
        header = self._from_fields(command)
        properties_mark = properties_at - 4 - _PROPERTIES_MARK_LENGTH
        if places_of((b"g", b"i"), raw) == [born_mark, properties_mark]:
            self._by_bytes.put(key, header.target)
        return header

    def _decode_json(self, command: RemotingCommand, raw: bytes) -> SendMessageRequestHeader:
        born_at = raw.find(_JSON_BORN_MARK) + _JSON_MARK_LENGTH
        born_end = born_at + _BORN_LENGTH
        properties_at = raw.find(_JSON_PROPERTIES_MARK, born_end) + _JSON_MARK_LENGTH
        properties_end = raw.find(b'"', properties_at)
        if born_at < _JSON_MARK_LENGTH or properties_at < born_end or properties_end < 0:
            return self._from_fields(command)
        key = raw[:born_at] + raw[born_end:properties_at] + raw[properties_end:]
        target = self._cached_by_bytes(key)
        try:
            properties = orjson.loads(raw[properties_at - 1 : properties_end + 1]).encode()
        except orjson.JSONDecodeError:  # the quotation mark that was found is one of the properties
            return self._from_fields(command)
        if target is None:
            header = self._from_fields(command)
            is_cut_right = raw[born_end : born_end + 1] == b'"' and header.properties == properties
            if is_cut_right and stand_once((_JSON_BORN_MARK, _JSON_PROPERTIES_MARK), raw):
                self._by_bytes.put(key, header.target)
            return header
        born = raw[born_at:born_end]
        if not born.isdigit():
            return self._from_fields(command)
        return SendMessageRequestHeader(target, int(born), properties)

    def _from_fields(self, command: RemotingCommand) -> SendMessageRequestHeader:
        fields = command.ext_fields
        if command.code in V1_CODES:
            keys, born_key, properties_key = V1_KEYS, "bornTimestamp", "properties"
        else:
            keys, born_key, properties_key = V2_KEYS, "g", "i"
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
        except UnicodeEncodeError as surrogate:
            raise HeaderError("SendMessageRequestHeader: properties hold a lone surrogate") from surrogate
        return SendMessageRequestHeader(target, born_timestamp_ms, raw_properties)


def _bytes_key_size(key: bytes, target: SendTarget) -> int:
    return _TARGET_OVERHEAD_BYTES + len(key)


def _fields_key_size(key: _FieldsKey, target: SendTarget) -> int:
    """Estimate the size of a key; a text takes up to four bytes a character."""
    sizes = [len(text) if text.isascii() else 4 * len(text) for text in key if text is not None]
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
                f"SendMessageRequestHeader: required field {LONG_NAMES[index][0]} ({keys[index]}) is missing"
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
