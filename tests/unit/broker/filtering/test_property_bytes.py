"""Single properties, compared with decoding all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.filtering.property_bytes import property_finder
from rmq_remoting.message_properties import decode_properties, find_property

_NAMES = ["a", "b", "ab", "TAGS"]
_MANY = 5000
_PIECES = [*_NAMES, "\x01", "\x02", "\x01\x02", "value", "a\x01", "值", ""]


@given(st.lists(st.sampled_from(_PIECES), max_size=14).map("".join))
def test_single_property_equals_full_decoding(text: str) -> None:
    raw = text.encode()
    every = decode_properties(raw)
    for name in _NAMES:
        found = property_finder(name)(raw)
        assert (None if found is None else found.decode()) == every.get(name)
        assert found == find_property(raw, name.encode())


@pytest.mark.parametrize("before", ["", "a\x01first\x02"])
def test_many_empty_values(before: str) -> None:
    raw = f"{before}b\x01x\x02".encode() + b"a\x01\x02" * _MANY
    assert property_finder("a")(raw) == (b"first" if before else None)
    assert property_finder("b")(raw) == b"x"
