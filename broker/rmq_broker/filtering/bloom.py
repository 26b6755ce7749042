"""Bloom filters: a message's queue entry records whose expressions it matched when it was stored.

Source: Apache RocketMQ 5.3.3, BloomFilter and BloomFilterData; hashing as Guava's murmur3_128.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_MASK_64: Final = (1 << 64) - 1
_MASK_32: Final = (1 << 32) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class BloomPositions:
    """Bit positions of one name, in a map of `bit_count` bits."""

    bit_count: int
    positions: tuple[int, ...]


class BloomFilter:
    """Bloom filter for about `names` names with a false-positive rate of `error_percent` percent."""

    def __init__(self, error_percent: int, names: int) -> None:
        rate = error_percent / 100.0
        self.hash_count = math.ceil(_logarithm(0.5, rate))
        bits = math.ceil(names * _logarithm(2, 1 / rate) * _logarithm(2, math.e))
        self.bit_count = 8 * math.ceil(bits / 8)

    def positions_of(self, name: str) -> BloomPositions:
        """Return the bit positions of a name."""
        hashed = murmur3_low_64(name.encode())
        low, high = _int32(hashed), _int32(hashed >> 32)
        positions: list[int] = []
        for number in range(1, self.hash_count + 1):
            combined = _int32(low + number * high)
            positions.append((combined if combined >= 0 else ~combined) % self.bit_count)
        return BloomPositions(self.bit_count, tuple(positions))

    def fits(self, positions: BloomPositions | None) -> bool:
        """Whether positions belong to a filter of this size."""
        return (
            positions is not None
            and positions.bit_count == self.bit_count
            and len(positions.positions) == self.hash_count
        )

    def bit_map(self, names: Iterable[BloomPositions]) -> bytes:
        """Return a map that contains these names."""
        bits = bytearray(self.bit_count // 8)
        for name in names:
            for position in name.positions:
                bits[position >> 3] |= 1 << (position & 7)
        return bytes(bits)


def may_contain(bit_map: bytes, name: BloomPositions) -> bool:
    """Whether a map may contain a name; True for a map of another size, which tells nothing."""
    if len(bit_map) * 8 != name.bit_count:
        return True
    return all(bit_map[position >> 3] >> (position & 7) & 1 for position in name.positions)


def murmur3_low_64(data: bytes) -> int:
    """Return the first half of MurmurHash3 x64 128 with seed 0, unsigned."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for start in range(0, whole, 16):
        k1 = int.from_bytes(data[start : start + 8], "little")
        k2 = int.from_bytes(data[start + 8 : start + 16], "little")
        h1 = (_rotated(h1 ^ _mixed_1(k1), 27) + h2) * 5 + 0x52DCE729 & _MASK_64
        h2 = (_rotated(h2 ^ _mixed_2(k2), 31) + h1) * 5 + 0x38495AB5 & _MASK_64
    tail = data[whole:]
    h1 ^= _mixed_1(int.from_bytes(tail[:8], "little"))
    h2 ^= _mixed_2(int.from_bytes(tail[8:], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK_64
    h2 = h2 + h1 & _MASK_64
    return _finished(h1) + _finished(h2) & _MASK_64


def _mixed_1(value: int) -> int:
    return _rotated(value * _C1 & _MASK_64, 31) * _C2 & _MASK_64


def _mixed_2(value: int) -> int:
    return _rotated(value * _C2 & _MASK_64, 33) * _C1 & _MASK_64


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK_64


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK_64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK_64
    return value ^ value >> 33


def _int32(value: int) -> int:
    value &= _MASK_32
    return value - (1 << 32) if value >> 31 else value


def _logarithm(base: float, value: float) -> float:
    return math.log(value) / math.log(base)
