"""Properties of a stored message, and what queues and index keep of them.

Apache RocketMQ 5.3.3, MessageDecoder.string2messageProperties, CommitLog.checkMessageAndReturnSize,
IndexService.buildIndex and Java's String.hashCode, written down apart from the broker's own code.
"""

from __future__ import annotations

from collections.abc import Iterator
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
_MOST_POWERS: Final = 64
# By the length of a text: what its hash multiplies the one before with, and each of its characters.
_POWER: Final[tuple[int, ...]] = tuple(pow(31, length, 1 << 32) for length in range(_MOST_POWERS + 1))
_POWERS: Final[tuple[tuple[int, ...], ...]] = tuple(
    _POWER[:length][::-1] for length in range(_MOST_POWERS + 1)
)


def all_properties(raw: bytes) -> dict[bytes, bytes]:
    """By name; what has no name or no value is dropped, of a repeated name the last counts."""
    found: dict[bytes, bytes] = {}
    for part in raw.split(b"\x02"):
        name, _, value = part.partition(b"\x01")
        if name and value:
            found[name] = value
    return found


def property_of(raw: bytes, name: bytes) -> bytes | None:
    """One property without taking the others apart."""
    wanted = name + b"\x01"
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
    """String.hashCode, signed."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = value * 31 + (high << 8 | low) & 0xFFFFFFFF
    return value - (value & _SIGN) * 2


def index_hash(topic: bytes, key: bytes) -> int:
    """The hash that an index file has for a key of a topic: never negative."""
    if key.isascii():
        if len(key) == _UNIQUE_KEY_DIGITS:
            value = _unique_key_hash(topic, key[:_BEFORE_COUNTER])
            a, b, c, d = key[_BEFORE_COUNTER:]
            value = value * 923521 + a * 29791 + b * 961 + c * 31 + d & 0xFFFFFFFF
        else:
            value = _topic_hash(topic)
            for at in range(0, len(key), _MOST_POWERS):
                value = _hash_on(value, key[at : at + _MOST_POWERS])
        return value if value < _SIGN else -value & (_SIGN - 1)
    value = java_hash(f"{_text(topic)}#{_text(key)}")
    return 0 if value == -_SIGN else abs(value)


def _hash_on(value: int, text: bytes) -> int:
    """A hash, made longer by an ASCII text. (A sum of products takes a third of the time of a loop.)"""
    length = len(text)
    added: int = sum(map(mul, text, _POWERS[length]))
    return value * _POWER[length] + added & 0xFFFFFFFF


def index_keys(record: Record) -> list[bytes]:
    """The keys that the index has of a record, in the order of their entries."""
    if record.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLED_BACK:
        return []
    unique = property_of(record.properties, b"UNIQ_KEY")
    found = [] if unique is None else [unique]
    keys = property_of(record.properties, b"KEYS")
    if keys is not None:
        found += filter(None, keys.split(b" "))
    return found


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The setting messageDelayLevel in ms. Raises ValueError."""
    levels = []
    for part in text.split():
        if part[-1] not in _UNITS_MS or not part[:-1].isdecimal():
            raise ValueError(
                f"{part!r} is no delay: a number and one of s, m, h, d, as in {DEFAULT_DELAY_LEVELS!r}"
            )
        levels.append(int(part[:-1]) * _UNITS_MS[part[-1]])
    if not levels:
        raise ValueError("there must be at least one delay level")
    return tuple(levels)


def tags_code(record: Record, delays_ms: tuple[int, ...]) -> int:
    """What the queue entry has beside offset and size: the hash of the tags, or when the message is due."""
    if record.topic == SCHEDULE_TOPIC:
        level = property_of(record.properties, b"DELAY")
        if level is not None and level.isdigit() and int(level) > 0:
            return record.store_time_ms + delays_ms[min(int(level), len(delays_ms)) - 1]
    tags = property_of(record.properties, b"TAGS")
    return 0 if tags is None else _tags_hash(tags)


def inner_batch(record: Record) -> tuple[int, int] | None:
    """First queue offset and number of messages of an inner batch; None where the record is none.

    Only where the flag is set: the properties alone may be a client's.
    """
    if not record.sys_flag & INNER_BATCH:
        return None
    number = property_of(record.properties, b"INNER_NUM")
    base = property_of(record.properties, b"INNER_BASE")
    if number is None or base is None or not number.isdigit() or not base.isdigit():
        return None
    return (int(base), int(number)) if 0 < int(number) <= LARGEST_BATCH else None


def light_queues(record: Record) -> Iterator[tuple[bytes, int, int]]:
    """Other queues that have an entry of this record, too: topic, queue id and offset (Apache's LMQ)."""
    names = property_of(record.properties, LIGHT_QUEUES)
    offsets = property_of(record.properties, b"INNER_MULTI_QUEUE_OFFSET")
    if names is None or offsets is None or names.count(b",") != offsets.count(b","):
        return
    for name, offset in zip(names.split(b","), offsets.split(b","), strict=True):
        if name and b"/" not in name and offset.isdigit():
            yield name, 0 if name.startswith(b"%LMQ%") else record.queue_id, int(offset)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


@lru_cache(maxsize=4096)
def _topic_hash(topic: bytes) -> int:
    return java_hash(f"{_text(topic)}#") & 0xFFFFFFFF


@lru_cache(maxsize=4096)
def _unique_key_hash(topic: bytes, key_begin: bytes) -> int:
    """Up to the counter of a client's unique key: all before it is the same for a millisecond."""
    return _hash_on(_topic_hash(topic), key_begin)


@lru_cache(maxsize=1024)
def _tags_hash(tags: bytes) -> int:
    return java_hash(_text(tags))
