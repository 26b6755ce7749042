"""Encoding of messages before a send."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rmq_client import Compression, CompressionType, Message, UsageError
from rmq_client.producer.message_encoder import MessageEncoder
from rmq_remoting.compression import decompress
from rmq_remoting.message_ids import UniqueKeyGenerator, parse_unique_key
from rmq_remoting.message_properties import decode_properties
from tests.support.compressions import COMPRESSIONS


def _encoder(compression: Compression | None = None) -> MessageEncoder:
    return MessageEncoder(UniqueKeyGenerator("10.0.0.1", 7, 8, lambda: 1_700_000_000_000), compression)


async def test_every_send_gets_an_id_of_its_own() -> None:
    encoder = _encoder()
    message = Message("T", b"x", tags="a", properties={"p": "ü"})
    prepared = [await encoder.outgoing(message) for _ in range(2)]
    assert prepared[0][1] != prepared[1][1]
    for outgoing, msg_id in prepared:
        assert decode_properties(outgoing.properties) == {"TAGS": "a", "p": "ü", "UNIQ_KEY": msg_id}
        assert parse_unique_key(msg_id).ip == "10.0.0.1"
    assert message.unique_key is None
    outgoing, msg_id = await encoder.outgoing(Message("T", b"x"))
    assert decode_properties(outgoing.properties) == {"UNIQ_KEY": msg_id}


async def test_an_existing_message_id_is_kept() -> None:
    message = Message("T", b"x")
    message.unique_key = "mine"
    outgoing, msg_id = await _encoder().outgoing(message)
    assert msg_id == "mine"
    assert decode_properties(outgoing.properties) == {"UNIQ_KEY": "mine"}


@pytest.mark.parametrize("kind", COMPRESSIONS)
@pytest.mark.parametrize("size", [100, 64 * 1024])
async def test_bodies_are_compressed_from_the_threshold_on(kind: CompressionType, size: int) -> None:
    encoder = _encoder(Compression(threshold_bytes=100, type=kind))
    body = os.urandom(10) * (size // 10)
    outgoing, _ = await encoder.outgoing(Message("T", body, flag=5))
    assert (outgoing.sys_flag, outgoing.flag) == (kind.sys_flag, 5)
    assert decompress(outgoing.body, kind) == body
    small, _ = await encoder.outgoing(Message("T", b"x" * 99))
    assert (small.sys_flag, small.body) == (0, b"x" * 99)


@pytest.mark.parametrize("kind", COMPRESSIONS)
@pytest.mark.parametrize("size", [100, 64 * 1024])
async def test_a_body_that_compression_would_grow_is_sent_uncompressed(
    kind: CompressionType, size: int
) -> None:
    body = os.urandom(size)
    outgoing, _ = await _encoder(Compression(threshold_bytes=100, type=kind)).outgoing(Message("T", body))
    assert (outgoing.sys_flag, outgoing.body) == (0, body)


def test_too_many_properties() -> None:
    encoder = _encoder()
    for size in (32_730, 40_000):
        with pytest.raises(UsageError, match="the limit is 32767"):
            encoder.properties(Message("T", b"x", properties={"p": "v" * size}))
    encoder.properties(Message("T", b"x", properties={"p": "v" * 32_700}))


async def test_large_bodies_are_compressed_outside_the_default_executor() -> None:
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(1)
    loop.set_default_executor(executor)
    release = threading.Event()
    busy = loop.run_in_executor(None, release.wait)
    try:
        async with asyncio.timeout(20):
            outgoing, _ = await _encoder(Compression()).outgoing(Message("T", b"x" * 64 * 1024))
        assert len(outgoing.body) < 64 * 1024
    finally:
        release.set()
        await busy


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_compresses_too() -> None:
    program = """
import asyncio, os
from rmq_client.producer.message_encoder import MessageEncoder
from rmq_client import Compression, Message
from rmq_remoting.message_ids import UniqueKeyGenerator

async def prepare():
    encoder = MessageEncoder(UniqueKeyGenerator("10.0.0.1", 7, 8, lambda: 1_700_000_000_000), Compression())
    async with asyncio.timeout(20):
        await asyncio.gather(*(encoder.outgoing(Message("T", b"x" * 64 * 1024)) for _ in range(20)))

asyncio.run(prepare())
child = os.fork()
if child == 0:
    asyncio.run(prepare())
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
