"""Addresses as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_remoting.message_errors import MessageDecodeError, MessageEncodeError
from rmq_remoting.socket_addresses import decode_address, encode_address


@pytest.mark.parametrize(
    ("host", "port", "raw"),
    [
        ("10.0.0.3", 10911, "0a00000300002a9f"),
        ("255.255.255.255", 65535, "ffffffff0000ffff"),
        ("2001:db8::3", 0, "20010db8000000000000000000000003" + "00000000"),
        ("::ffff:10.0.0.3", 1, "00000000000000000000ffff0a000003" + "00000001"),
    ],
)
def test_addresses_round_trip(host: str, port: int, raw: str) -> None:
    assert encode_address(host, port).hex() == raw
    assert decode_address(bytes.fromhex(raw)) == (host, port)


def test_a_zone_is_omitted() -> None:
    assert encode_address("fe80::1%eth0", 5) == encode_address("fe80::1", 5)


@given(st.binary(max_size=24))
def test_any_bytes_are_decoded_or_refused(raw: bytes) -> None:
    try:
        host, port = decode_address(raw)
    except MessageDecodeError:
        assert len(raw) not in (8, 20) or int.from_bytes(raw[-4:], "big") > 65535
    else:
        assert encode_address(host, port) == raw


@pytest.mark.parametrize("host", ["", "localhost", "1.2.3", "1.2.3.4.5", "::g", "10.0.0.1\0", "\ud83d"])
def test_an_invalid_address_is_refused(host: str) -> None:
    with pytest.raises(MessageEncodeError, match="no IP address"):
        encode_address(host, 1)


@pytest.mark.parametrize("port", [-1, 65536])
def test_an_invalid_port_is_refused(port: int) -> None:
    with pytest.raises(MessageEncodeError, match="between 0 and 65535"):
        encode_address("10.0.0.1", port)
