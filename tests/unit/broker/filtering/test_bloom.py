"""Bloom filters, compared with Apache's."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_broker.filtering.bloom import BloomFilter, BloomPositions, may_contain
from tests.support.golden import json_file


@pytest.mark.parametrize("case", json_file("hashes.json")["bloom_filter"]["cases"])
def test_sizes_and_positions(case: dict[str, Any]) -> None:
    bloom = BloomFilter(case["f_percent"], case["n"])
    assert (bloom.hash_count, bloom.bit_count) == (case["k"], case["m"])
    for row in case["strings"]:
        name = bloom.positions_of(row["string"])
        assert name == BloomPositions(case["m"], tuple(row["bit_positions"]))
        assert bloom.bit_map([name]).hex() == row["bits_hex"]
        assert bloom.fits(name)
        assert may_contain(bytes.fromhex(row["bits_hex"]), name)
        assert not may_contain(bytes(bloom.bit_count // 8), name)


def test_map_of_another_size_may_contain_everything() -> None:
    small, large = BloomFilter(20, 32), BloomFilter(20, 64)
    name = small.positions_of("CG#T")
    assert not large.fits(name) and not small.fits(None)
    assert may_contain(large.bit_map([]), name)
