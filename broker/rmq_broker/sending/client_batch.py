"""Read the messages of a client's batch (Apache RocketMQ 5.3.3, MessageDecoder.encodeMessages).

A message is `int32 size, int32 0, int32 0, int32 flag, int32 body length, body, int16 properties length,
properties`.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

from ..store.api import BatchMessages
from .properties import PropertiesEditor

_ITEM: Final = Struct(">12xii")
_ITEM_BYTES: Final = 20  # before the body
_LENGTH: Final = Struct(">H")
_LENGTH_BYTES: Final = 2  # behind the body
# One search finds both TAGS and KEYS.
_END_OF_TAGS_OR_KEYS: Final = b"S\x01"
_KEYS: Final = b"KEYS\x01"
_TAGS: Final = b"TAGS\x01"


def read_batch(
    body: bytes, shared: bytes, shared_code: int, editor: PropertiesEditor
) -> tuple[BatchMessages, bool]:
    """Return the messages of a batch, and whether one of them may have KEYS. Raises CommandError.

    The properties of the batch belong to each of its messages, as with Apache's broker. `shared` are those
    properties as they are stored, and `shared_code` is the hash of their tags.
    """
    found = _of_one_size(body, shared, shared_code, editor.max_bytes)
    if found is None:
        messages = _one_by_one(body, shared, shared_code, editor.max_bytes)
        all_own = b"".join(messages.own_properties)
    else:
        messages, all_own = found
    if _END_OF_TAGS_OR_KEYS not in all_own:
        return messages, _KEYS in shared
    if _TAGS in all_own:
        tags_codes = [editor.tags_code(own + shared) for own in messages.own_properties]
        messages = messages._replace(tags_codes=tags_codes)
    return messages, _KEYS in shared or _KEYS in all_own


def _of_one_size(
    body: bytes, shared: bytes, shared_code: int, max_bytes: int
) -> tuple[BatchMessages, bytes] | None:
    """Read a batch whose messages have equal flags and lengths, in a few steps for all of them.

    Returns the messages and the concatenated properties of all of them. None for any other batch: then
    `_one_by_one` reads it, or refuses an invalid one.
    """
    end = len(body)
    if end < _ITEM_BYTES + _LENGTH_BYTES:
        return None
    flag, body_length = _ITEM.unpack_from(body, 0)
    if not 0 <= body_length <= end - _ITEM_BYTES - _LENGTH_BYTES:
        return None
    (properties_length,) = _LENGTH.unpack_from(body, _ITEM_BYTES + body_length)
    size = _ITEM_BYTES + body_length + _LENGTH_BYTES + properties_length
    count, rest = divmod(end, size)
    if rest or not count or properties_length + len(shared) > max_bytes:
        return None
    heads, bodies, lengths, own_properties = zip(
        *_splitter(body_length, properties_length).iter_unpack(body), strict=True
    )
    if heads.count(heads[0]) != count or lengths.count(lengths[0]) != count:
        return None
    all_own = b"".join(own_properties)
    if all_own and (
        not all_own.isascii() or all_own[properties_length - 1 :: properties_length].strip(b"\x02")
    ):
        return None
    messages = BatchMessages([flag] * count, bodies, own_properties, shared, [shared_code] * count)
    return messages, all_own


@lru_cache(maxsize=1024)
def _splitter(body_length: int, properties_length: int) -> Struct:
    return Struct(f">{_ITEM_BYTES}s{body_length}s{_LENGTH_BYTES}s{properties_length}s")


def _one_by_one(body: bytes, shared: bytes, shared_code: int, max_bytes: int) -> BatchMessages:
    """Read the messages of any batch, one by one. Raises CommandError."""
    unpack_item, unpack_length, shared_length = _ITEM.unpack_from, _LENGTH.unpack_from, len(shared)
    flags: list[int] = []
    bodies: list[bytes] = []
    own_properties: list[bytes] = []
    position, end = 0, len(body)
    while position < end:
        if position + _ITEM_BYTES + _LENGTH_BYTES > end:
            raise _broken(len(flags), "ends within a message")
        flag, body_length = unpack_item(body, position)
        body_at = position + _ITEM_BYTES
        properties_at = body_at + body_length + _LENGTH_BYTES
        if body_length < 0 or properties_at > end:
            raise _broken(len(flags), f"has a body length of {body_length}")
        (properties_length,) = unpack_length(body, properties_at - _LENGTH_BYTES)
        position = properties_at + properties_length
        if position > end:
            raise _broken(len(flags), f"has a properties length of {properties_length}")
        own = body[properties_at:position]
        if own and own[-1] != 2:
            own += b"\x02"
        if not own.isascii():
            _check_utf8(own, len(flags))
        if len(own) + shared_length > max_bytes:
            raise _broken(len(flags), f"has properties of {len(own) + shared_length} bytes, too many")
        flags.append(flag)
        bodies.append(body[body_at : properties_at - _LENGTH_BYTES])
        own_properties.append(own)
    return BatchMessages(flags, bodies, own_properties, shared, [shared_code] * len(flags))


def _broken(index: int, problem: str) -> CommandError:
    return CommandError(ResponseCode.MESSAGE_ILLEGAL, f"message {index} of the batch {problem}")


def _check_utf8(properties: bytes, index: int) -> None:
    try:
        properties.decode()
    except UnicodeDecodeError as error:
        raise _broken(index, "has properties that are not UTF-8") from error
