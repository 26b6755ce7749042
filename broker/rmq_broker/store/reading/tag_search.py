"""Finding a queue's entries by tag without unpacking each entry: rare tags cost little."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final

from ..queues.consume_queue import QUEUE_ENTRY

# A hash has 32 bits and a sign. Any other first byte is that of an address in the queue's extension files.
_FIRST_BYTES_OF_HASHES: Final = b"\x00\xff"
_CODE: Final = Struct(">q")
_CODE_AT: Final = QUEUE_ENTRY.size - _CODE.size
_CODES: Final = Struct(f">{_CODE_AT}xq")
# More hashes are looked up entry by entry: a search for each of them would take longer.
_MOST_SEARCHED: Final = 16


def has_hashes_alone(raw: bytes) -> bool:
    """Whether each of these packed entries holds the hash of its tags, and none an address."""
    return not raw[_CODE_AT :: QUEUE_ENTRY.size].translate(None, _FIRST_BYTES_OF_HASHES)


def find_tagged(raw: bytes, tags_codes: frozenset[int], most: int) -> list[int]:
    """Return the indexes of the first `most` packed entries with one of the hashes.

    All entries hold hashes.
    """
    if len(tags_codes) > _MOST_SEARCHED:
        return _look_up(raw, tags_codes, most)
    found: list[int] = []
    for code in _packed(tags_codes):
        found += _find(raw.find, code, most)
    if len(tags_codes) > 1:
        found.sort()
    return found[:most]


def _look_up(raw: bytes, tags_codes: frozenset[int], most: int) -> list[int]:
    found: list[int] = []
    for index, (code,) in enumerate(_CODES.iter_unpack(raw)):
        if code in tags_codes:
            found.append(index)
            if len(found) == most:
                break
    return found


def _find(find: Callable[[bytes, int], int], code: bytes, most: int) -> list[int]:
    found: list[int] = []
    position = find(code, _CODE_AT)
    while position >= 0 and len(found) < most:
        index, behind = divmod(position - _CODE_AT, QUEUE_ENTRY.size)
        if behind:  # the bytes are not a whole tags code
            position = find(code, position + QUEUE_ENTRY.size - behind)
        else:
            found.append(index)
            position = find(code, position + QUEUE_ENTRY.size)
    return found


@lru_cache(maxsize=4096)
def _packed(tags_codes: frozenset[int]) -> tuple[bytes, ...]:
    return tuple(_CODE.pack(code) for code in tags_codes)
