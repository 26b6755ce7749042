"""Java's `String.hashCode`: Apache RocketMQ uses it for tags in consume queues and keys in index files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

_MASK: Final = 0xFFFFFFFF
_SIGN_BIT: Final = 0x80000000
_UTF16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"

# Up to this length the value is cut to 32 bits once, at the end: big integers are cheaper than a mask for
# every character (measured: 1.1 against 1.5 µs for 32 characters; both cost the same near 80).
_UNMASKED_LENGTH: Final = 64


def string_hash_code(text: str, seed: int = 0) -> int:
    """Return the hash of `text` as a signed 32 bit integer.

    It is s[0]*31^(n-1) + ... + s[n-1] over the UTF-16 code units.

    `seed` is the hash of the text before `text`: `string_hash_code(b, string_hash_code(a))` is the hash of
    `a + b`. A prefix that many texts share is hashed only once that way.
    """
    if text.isascii():
        return _hash_units(text.encode("ascii"), seed)
    # A lone surrogate is an ordinary code unit to Java.
    return _hash_units(memoryview(text.encode(_UTF16, "surrogatepass")).cast("H"), seed)


def utf8_hash_code(raw: bytes, seed: int = 0) -> int:
    """Return the hash of the string encoded in `raw` (UTF-8); malformed bytes count as U+FFFD, as in Java."""
    if raw.isascii():
        return _hash_units(raw, seed)
    return string_hash_code(raw.decode("utf-8", "replace"), seed)


@lru_cache(maxsize=4096)
def prefix_hash_code(prefix: str, seed: int = 0) -> int:
    """`string_hash_code` with a cache, for prefixes that many texts share, such as `topic#`.

    The first 20 (IPv4) or 44 (IPv6) characters of a client's unique keys are another such prefix.
    """
    return string_hash_code(prefix, seed)


def tags_code(tags: str | None) -> int:
    """Return the tags code in a consume queue entry: the hash of the message's tags, 0 without tags.

    Apache RocketMQ 5.3.3, MessageExtBrokerInner.tagsString2tagsCode: the text is hashed as a whole,
    even if it looks like several tags.
    """
    return string_hash_code(tags) if tags else 0


def _hash_units(units: Sequence[int], seed: int) -> int:
    value = seed & _MASK
    if len(units) <= _UNMASKED_LENGTH:
        for unit in units:
            value = value * 31 + unit
        value &= _MASK
    else:
        for unit in units:
            value = (value * 31 + unit) & _MASK
    return value - 0x100000000 if value & _SIGN_BIT else value
