"""Message ids: where a message lies (offset message id) and who sent it (a client's unique key).

Both are upper-case hex texts of 32 (IPv4) or 56 (IPv6) characters; nothing in the text tells them apart.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from .message_errors import MessageDecodeError, MessageEncodeError, MessageIdError
from .socket_addresses import HostPort, decode_address, encode_address

_IPV4_ID_BYTES: Final = 16
_IPV6_ID_BYTES: Final = 28
# Process id, hash of the creating instance, milliseconds of the month, counter: what follows the IP address.
_UNIQUE_KEY_TAIL: Final = struct.Struct(">HIIH")
_MAX_NEGATIVE_CLOCK_STEP_MS: Final = 1_000_000


class OffsetMessageId(NamedTuple):
    """Address of the broker that stored a message, and the message's offset in its commit log."""

    address: HostPort
    physical_offset: int


def offset_message_id(address: HostPort, physical_offset: int) -> str:
    """The id that a broker gives a message. Raises MessageEncodeError for a bad address or offset."""
    try:
        offset = physical_offset.to_bytes(8, "big", signed=True)
    except OverflowError as error:
        raise MessageEncodeError(f"physical offset {physical_offset} does not fit in 64 bits") from error
    return (encode_address(*address) + offset).hex().upper()


def parse_offset_message_id(message_id: str) -> OffsetMessageId:
    """The parts of a broker's message id. Raises MessageIdError for anything else."""
    raw = _id_bytes(message_id)
    try:
        address = decode_address(raw[:-8])
    except MessageDecodeError as error:
        raise MessageIdError(f"{message_id!r} is no offset message id: {error.reason}") from error
    return OffsetMessageId(address, int.from_bytes(raw[-8:], "big", signed=True))


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """The parts of a client's unique key (Apache RocketMQ 5.3.3, MessageClientIDSetter).

    `milliseconds_of_month` counts from the first of the creating client's month, 00:00 of its local time.
    """

    ip: str
    process_id: int
    instance_hash: int
    milliseconds_of_month: int
    counter: int

    def encode(self) -> str:
        """The key as text. Raises MessageEncodeError where a part is too large for its field."""
        parts = (self.process_id, self.instance_hash, self.milliseconds_of_month, self.counter)
        try:
            tail = _UNIQUE_KEY_TAIL.pack(*parts)
        except struct.error as error:
            raise MessageEncodeError(f"{self} does not fit in 16, 32, 32 and 16 bits: {error}") from error
        return (encode_address(self.ip, 0)[:-4] + tail).hex().upper()

    def created_at_ms(self, now_ms: int) -> int:
        """About when the key was made: this month, or the month before where that would be the future."""
        month_start_ms, _ = _month_bounds_ms(now_ms)
        if month_start_ms + self.milliseconds_of_month >= now_ms:
            month_start_ms, _ = _month_bounds_ms(month_start_ms - 1)
        return month_start_ms + self.milliseconds_of_month


def parse_unique_key(key: str) -> UniqueKey:
    """The parts of a client's unique key. Raises MessageIdError for what cannot be one."""
    raw = _id_bytes(key)
    tail_start = len(raw) - _UNIQUE_KEY_TAIL.size
    ip, _ = decode_address(raw[:tail_start] + bytes(4))
    return UniqueKey(ip, *_UNIQUE_KEY_TAIL.unpack_from(raw, tail_start))


class UniqueKeyGenerator:
    """Makes unique keys for the messages of one client process.

    The first 20 characters (44 with an IPv6 address) are the same in all keys of a generator. Two generators
    never make the same key as long as address, process id and instance hash are not all three the same: a
    forked process needs a generator of its own. Safe to use from several threads.
    """

    def __init__(self, ip: str, process_id: int, instance_hash: int, clock_ms: Callable[[], int]) -> None:
        """`instance_hash`: any 32 bits, e.g. random ones; `clock_ms`: milliseconds since 1970 UTC."""
        address = encode_address(ip, 0)[:-4]
        self.prefix: Final = (
            (address + struct.pack(">HI", process_id & 0xFFFF, instance_hash & 0xFFFFFFFF)).hex().upper()
        )
        self._clock_ms = clock_ms
        self._next_count = count().__next__
        self._month_start_ms, self._month_end_ms = _month_bounds_ms(clock_ms())

    def next_key(self) -> str:
        """A new key."""
        now_ms = self._clock_ms()
        if now_ms >= self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_bounds_ms(now_ms)
        elapsed_ms = now_ms - self._month_start_ms
        if -_MAX_NEGATIVE_CLOCK_STEP_MS < elapsed_ms < 0:
            elapsed_ms = 0  # the clock was set back over the month's beginning
        return f"{self.prefix}{elapsed_ms & 0xFFFFFFFF:08X}{self._next_count() & 0xFFFF:04X}"


def _id_bytes(text: str) -> bytes:
    try:
        raw = bytes.fromhex(text)
    except ValueError as error:
        raise MessageIdError(f"{text!r} is no message id: it must be hexadecimal") from error
    if len(raw) not in (_IPV4_ID_BYTES, _IPV6_ID_BYTES) or len(raw) * 2 != len(text):
        raise MessageIdError(f"{text!r} is no message id: it must have 32 or 56 hexadecimal digits")
    return raw


def _month_bounds_ms(now_ms: int) -> tuple[int, int]:
    """Begin and end of the local month that `now_ms` lies in."""
    local = time.localtime(now_ms / 1000)
    begin = time.mktime((local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    end = time.mktime((local.tm_year, local.tm_mon + 1, 1, 0, 0, 0, 0, 0, -1))
    return int(begin) * 1000, int(end) * 1000
