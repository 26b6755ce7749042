"""What is made of a message before it is sent."""

from __future__ import annotations

import os

import pytest

from rmq_client import Compression, CompressionType, Message, UsageError
from rmq_client.producer.preparing import Preparer
from rmq_remoting.compression import decompress
from rmq_remoting.message_ids import UniqueKeyGenerator, parse_unique_key
from rmq_remoting.message_properties import decode_properties


def _preparer(compression: Compression | None = None) -> Preparer:
    return Preparer(UniqueKeyGenerator("10.0.0.1", 7, 8, lambda: 1_700_000_000_000), compression)


async def test_every_send_gets_an_id_of_its_own() -> None:
    preparer = _preparer()
    message = Message("T", b"x", tags="a", properties={"p": "ü"})
    prepared = [await preparer.outgoing(message) for _ in range(2)]
    assert prepared[0][1] != prepared[1][1]
    for outgoing, msg_id in prepared:
        assert decode_properties(outgoing.properties) == {"TAGS": "a", "p": "ü", "UNIQ_KEY": msg_id}
        assert parse_unique_key(msg_id).ip == "10.0.0.1"
    assert message.unique_key is None
    outgoing, msg_id = await preparer.outgoing(Message("T", b"x"))
    assert decode_properties(outgoing.properties) == {"UNIQ_KEY": msg_id}


async def test_an_id_that_is_there_stays() -> None:
    message = Message("T", b"x")
    message.unique_key = "mine"
    outgoing, msg_id = await _preparer().outgoing(message)
    assert msg_id == "mine"
    assert decode_properties(outgoing.properties) == {"UNIQ_KEY": "mine"}


@pytest.mark.parametrize("kind", list(CompressionType))
@pytest.mark.parametrize("size", [100, 64 * 1024])
async def test_bodies_are_compressed_from_the_threshold_on(kind: CompressionType, size: int) -> None:
    preparer = _preparer(Compression(threshold_bytes=100, type=kind))
    body = os.urandom(10) * (size // 10)
    outgoing, _ = await preparer.outgoing(Message("T", body, flag=5))
    assert (outgoing.sys_flag, outgoing.flag) == (kind.sys_flag, 5)
    assert decompress(outgoing.body, kind) == body
    small, _ = await preparer.outgoing(Message("T", b"x" * 99))
    assert (small.sys_flag, small.body) == (0, b"x" * 99)


@pytest.mark.parametrize("kind", list(CompressionType))
@pytest.mark.parametrize("size", [100, 64 * 1024])
async def test_a_body_that_would_grow_stays_as_it_is(kind: CompressionType, size: int) -> None:
    body = os.urandom(size)
    outgoing, _ = await _preparer(Compression(threshold_bytes=100, type=kind)).outgoing(Message("T", body))
    assert (outgoing.sys_flag, outgoing.body) == (0, body)


def test_too_many_properties() -> None:
    preparer = _preparer()
    for size in (32_730, 40_000):
        with pytest.raises(UsageError, match="32767 are allowed"):
            preparer.properties(Message("T", b"x", properties={"p": "v" * size}))
    preparer.properties(Message("T", b"x", properties={"p": "v" * 32_700}))
