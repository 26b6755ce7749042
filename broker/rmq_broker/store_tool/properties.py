"""Properties of a stored message, and the values derived from them for queues and index.

Apache RocketMQ 5.3.3, MessageDecoder.string2messageProperties, CommitLog.checkMessageAndReturnSize,
IndexService.buildIndex and Java's String.hashCode, implemented independently of the broker's code.
"""

from __future__ import annotations

from functools import lru_cache
from operator import mul
from typing import Final

from .layout import INNER_BATCH, LARGEST_BATCH, TRANSACTION_MASK, TRANSACTION_ROLLED_BACK, Record

LIGHT_QUEUES: Final = b"INNER_MULTI_DISPATCH"
SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIGN: Final = 1 << 31
_UNIQUE_KEY_DIGITS: Final = 32
_BEFORE_COUNTER: Final = 28
_MAX_POWERS: Final = 64
# By the length of a text: the factors for the preceding hash and for each of the characters.
_POWER: Final[tuple[int, ...]] = tuple(pow(31, length, 1 << 32) for length in range(_MAX_POWERS + 1))
_POWERS: Final[tuple[tuple[int, ...], ...]] = tuple(
    _POWER[:length][::-1] for length in range(_MAX_POWERS + 1)
)


def all_properties(raw: bytes) -> dict[bytes, bytes]:
    """Return the properties by name. Entries without name or value are dropped; the last of a name counts."""
    found: dict[bytes, bytes] = {}
    for part in raw.split(b"\x02"):
        name, _, value = part.partition(b"\x01")
        if name and value:
            found[name] = value
    return found


def property_of(raw: bytes, name: bytes) -> bytes | None:
    """Return one property without decoding the others; None if it is missing."""
    return property_at(raw, name + b"\x01")


def property_at(raw: bytes, wanted: bytes) -> bytes | None:
    """Return the value of the property whose name, with the separator behind it, is `wanted`."""
    at = raw.rfind(wanted)
    while at >= 0:
        if at == 0 or raw[at - 1] == 2:
            begin = at + len(wanted)
            end = raw.find(b"\x02", begin)
            value = raw[begin:] if end < 0 else raw[begin:end]
            if value:
                return value
        at = raw.rfind(wanted, 0, at)
    return None


def java_hash(text: str) -> int:
    """Return Java's String.hashCode, signed."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = value * 31 + (high << 8 | low) & 0xFFFFFFFF
    return value - (value & _SIGN) * 2


def index_hash(topic: bytes, key: bytes) -> int:
    """Return the hash of a topic's key in an index file; it is never negative."""
    if key.isascii():
        if len(key) == _UNIQUE_KEY_DIGITS:
            value = _unique_key_hash(topic, key[:_BEFORE_COUNTER])
            a, b, c, d = key[_BEFORE_COUNTER:]
            value = value * 923521 + a * 29791 + b * 961 + c * 31 + d & 0xFFFFFFFF
        else:
            value = topic_hash(topic)
            for at in range(0, len(key), _MAX_POWERS):
                value = hash_on(value, key[at : at + _MAX_POWERS])
        return value if value < _SIGN else -value & (_SIGN - 1)
    value = java_hash(f"{_text(topic)}#{_text(key)}")
    return 0 if value == -_SIGN else abs(value)


def hash_on(value: int, text: bytes) -> int:
    """Extend a hash by an ASCII text. (A sum of products takes a third of the time of a loop.)"""
    length = len(text)
    added: int = sum(map(mul, text, _POWERS[length]))
    return value * _POWER[length] + added & 0xFFFFFFFF


def index_keys(record: Record) -> list[bytes]:
    """Return the keys of a record in the index, in the order of their entries."""
    if record.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLED_BACK:
        return []
    unique = property_of(record.properties, b"UNIQ_KEY")
    found = [] if unique is None else [unique]
    keys = property_of(record.properties, b"KEYS")
    if keys is not None:
        found += filter(None, keys.split(b" "))
    return found


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Parse the setting messageDelayLevel into ms by level. Raises ValueError."""
    levels = []
    for part in text.split():
        if part[-1] not in _UNITS_MS or not part[:-1].isdecimal():
            raise ValueError(
                f"delay {part!r} must be a number with a unit s, m, h or d, as in {DEFAULT_DELAY_LEVELS!r}"
            )
        levels.append(int(part[:-1]) * _UNITS_MS[part[-1]])
    if not levels:
        raise ValueError("there must be at least one delay level")
    return tuple(levels)


def tags_code(record: Record, delays_ms: tuple[int, ...]) -> int:
    """Return the third field of a queue entry: hash of the tags, or delivery time of a delayed message."""
    if record.topic == SCHEDULE_TOPIC:
        level = property_of(record.properties, b"DELAY")
        if level is not None and level.isdigit() and int(level) > 0:
            return record.store_time_ms + delays_ms[min(int(level), len(delays_ms)) - 1]
    tags = property_of(record.properties, b"TAGS")
    return 0 if tags is None else tags_hash(tags)


def inner_batch(record: Record) -> tuple[int, int] | None:
    """Return first queue offset and number of messages of an inner batch; None for other records.

    The flag decides, because a client may set the properties as well.
    """
    if not record.sys_flag & INNER_BATCH:
        return None
    number = property_of(record.properties, b"INNER_NUM")
    base = property_of(record.properties, b"INNER_BASE")
    if number is None or base is None or not number.isdigit() or not base.isdigit():
        return None
    return (int(base), int(number)) if 0 < int(number) <= LARGEST_BATCH else None


def light_queues(record: Record) -> list[tuple[bytes, int, int]]:
    """Return topic, queue id and offset of the light message queues (LMQ) that also have this record."""
    names = property_of(record.properties, LIGHT_QUEUES)
    offsets = property_of(record.properties, b"INNER_MULTI_QUEUE_OFFSET")
    if names is None or offsets is None or names.count(b",") != offsets.count(b","):
        return []
    return [
        (name, 0 if name.startswith(b"%LMQ%") else record.queue_id, int(offset))
        for name, offset in zip(names.split(b","), offsets.split(b","), strict=True)
        if name and b"/" not in name and offset.isdigit()
    ]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


@lru_cache(maxsize=4096)
def topic_hash(topic: bytes) -> int:
    return java_hash(f"{_text(topic)}#") & 0xFFFFFFFF


@lru_cache(maxsize=4096)
def _unique_key_hash(topic: bytes, key_begin: bytes) -> int:
    """Hash a unique key up to its counter. The part before the counter stays the same for a millisecond."""
    return hash_on(topic_hash(topic), key_begin)


@lru_cache(maxsize=1024)
def tags_hash(tags: bytes) -> int:
    return java_hash(_text(tags))
