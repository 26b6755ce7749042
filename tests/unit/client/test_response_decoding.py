"""Decoding of responses: the limit of a response, skipped messages, and large bodies in threads."""

from __future__ import annotations

import asyncio
import random
import threading
import zlib

import pytest

from rmq_client import response_decoding
from rmq_client.response_decoding import ResponseDecoding, decode_all, decompress_body
from rmq_remoting import compression, message_batch
from rmq_remoting.compression import CompressionType, DecompressionBudget
from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_batch import encode_batch
from rmq_remoting.message_codec import encode_stored_message
from rmq_remoting.message_errors import (
    DecompressedTooLargeError,
    DecompressionBudgetError,
    DecompressionError,
    MessageDecodeError,
)
from rmq_remoting.sys_flags import MessageSysFlag

_MAX_BODY = 1 << 20
_ZLIB = CompressionType.ZLIB.sys_flag
_BATCH = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP
_LARGE = random.Random(1).randbytes(100_000)


def _plain(offset: int, body: bytes = b"plain") -> bytes:
    return encode_stored_message(MessageExt("T", body, queue_offset=offset))


def _compressed(offset: int, body: bytes, sys_flag: int = 0) -> bytes:
    return encode_stored_message(
        MessageExt("T", zlib.compress(body), queue_offset=offset, sys_flag=_ZLIB | sys_flag)
    )


def _broken(offset: int) -> bytes:
    return encode_stored_message(MessageExt("T", b"no zlib", queue_offset=offset, sys_flag=_ZLIB))


async def _decode(records: bytes, max_body_bytes: int = _MAX_BODY) -> ResponseDecoding:
    decoding = ResponseDecoding(records, max_body_bytes)
    if decoding.needs_thread:
        await decoding.finish_in_thread()
    return decoding


def _offsets(messages: list[MessageExt]) -> list[int]:
    return [message.queue_offset for message in messages]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Return the threads of all decompressions that the budget allowed."""
    found: list[threading.Thread] = []
    decompress = DecompressionBudget.decompress

    def recording(budget: DecompressionBudget, body: bytes, sys_flag: int) -> bytes:
        result = decompress(budget, body, sys_flag)
        found.append(threading.current_thread())
        return result

    monkeypatch.setattr(DecompressionBudget, "decompress", recording)
    return found


class TestThreads:
    async def test_small_bodies_are_decompressed_on_the_loop(self, threads: list[threading.Thread]) -> None:
        decoding = ResponseDecoding(_plain(0) + _compressed(1, b"a") + _compressed(2, b"b"), _MAX_BODY)
        assert not decoding.needs_thread
        assert [message.body for message in decoding.messages] == [b"plain", b"a", b"b"]
        assert threads == [threading.current_thread()] * 2

    async def test_large_bodies_are_decompressed_in_a_thread(self, threads: list[threading.Thread]) -> None:
        records = _compressed(0, b"a") + _compressed(1, _LARGE) + _plain(2) + _compressed(3, b"b")
        decoding = ResponseDecoding(records, _MAX_BODY)
        assert decoding.needs_thread
        assert _offsets(decoding.messages) == [0]
        await decoding.finish_in_thread()
        assert not decoding.needs_thread
        assert [message.body for message in decoding.messages] == [b"a", _LARGE, b"plain", b"b"]
        assert threads[0] is threading.current_thread()
        assert all(thread.name.startswith("rmq-compress") for thread in threads[1:])
        assert (decoding.skipped, decoding.error, decoding.undecoded()) == ([], None, [])

    async def test_many_small_bodies_are_large_together(
        self, threads: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        body = zlib.compress(b"x")
        monkeypatch.setattr(response_decoding, "_INLINE_BYTES", 3 * len(body))
        decoding = await _decode(b"".join(_compressed(offset, b"x") for offset in range(5)))
        assert _offsets(decoding.messages) == list(range(5))
        assert [thread is threading.current_thread() for thread in threads] == [True] * 3 + [False] * 2

    async def test_compressed_batches_are_decompressed_in_a_thread(
        self, threads: list[threading.Thread]
    ) -> None:
        batch = encode_batch([Message("T", b"1"), Message("T", b"2")])
        decoding = await _decode(_compressed(7, batch, _BATCH))
        assert [(message.queue_offset, message.body) for message in decoding.messages] == [
            (7, b"1"),
            (8, b"2"),
        ]
        assert threads != [threading.current_thread()]

    async def test_decompression_bombs_are_decompressed_in_a_thread(
        self, threads: list[threading.Thread]
    ) -> None:
        decoding = await _decode(_compressed(0, bytes(9 << 20)), 10 << 20)
        assert [len(message.body) for message in decoding.messages] == [9 << 20]
        assert len(await decompress_body(zlib.compress(bytes(9 << 20)), _ZLIB, 10 << 20)) == 9 << 20
        assert len(threads) == 2
        assert threading.current_thread() not in threads

    async def test_large_plain_bodies_need_no_thread(self) -> None:
        assert not ResponseDecoding(_plain(0, _LARGE), _MAX_BODY).needs_thread

    async def test_single_bodies(self, threads: list[threading.Thread]) -> None:
        for body in (b"a", _LARGE):
            assert await decompress_body(zlib.compress(body), _ZLIB, _MAX_BODY) == body
        assert [thread is threading.current_thread() for thread in threads] == [True, False]
        with pytest.raises(DecompressedTooLargeError, match="99999 bytes"):
            await decompress_body(zlib.compress(_LARGE), _ZLIB, 99_999)

    async def test_the_loop_goes_on_meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        meanwhile = threading.Event()
        decompress = DecompressionBudget.decompress

        def waiting(budget: DecompressionBudget, body: bytes, sys_flag: int) -> bytes:
            result = decompress(budget, body, sys_flag)
            assert meanwhile.wait(5), "the loop did not go on"
            return result

        monkeypatch.setattr(DecompressionBudget, "decompress", waiting)
        asyncio.get_running_loop().call_soon(meanwhile.set)
        decoding = await _decode(_compressed(0, _LARGE))
        assert _offsets(decoding.messages) == [0]


class TestLimitOfAResponse:
    @pytest.fixture(autouse=True)
    def small_responses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compression, "MAX_RESPONSE_BYTES", 1000)

    async def test_messages_beyond_it_stay_undecoded(self) -> None:
        records = b"".join(_compressed(offset, bytes(600)) for offset in range(3)) + _plain(3)
        decoding = await _decode(records)
        assert isinstance(decoding.error, DecompressionBudgetError)
        assert _offsets(decoding.messages) == [0, 1]
        undecoded = decoding.undecoded()
        assert _offsets(undecoded) == [2, 3]
        assert zlib.decompress(undecoded[0].body) == bytes(600)
        assert undecoded[0].sys_flag & MessageSysFlag.COMPRESSED

    async def test_it_covers_the_loop_and_the_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        body = zlib.compress(bytes(600))
        monkeypatch.setattr(response_decoding, "_INLINE_BYTES", len(body))
        decoding = await _decode(b"".join(_compressed(offset, bytes(600)) for offset in range(3)))
        assert _offsets(decoding.messages) == [0, 1]
        assert _offsets(decoding.undecoded()) == [2]

    async def test_bodies_above_their_own_limit_count(self) -> None:
        records = _compressed(0, bytes(5000)) + _compressed(1, b"x") + _plain(2)
        decoding = await _decode(records, 1000)
        assert isinstance(decoding.error, DecompressionBudgetError)
        assert (_offsets(decoding.messages), _offsets(decoding.undecoded())) == ([], [1, 2])
        ((skipped, cause),) = decoding.skipped
        assert skipped.queue_offset == 0
        assert isinstance(cause, DecompressedTooLargeError)


class TestDamage:
    async def test_bodies_that_cannot_be_decompressed_are_skipped(self) -> None:
        decoding = await _decode(_compressed(0, b"a") + _broken(1) + _compressed(2, b"c") + _broken(3))
        assert [message.body for message in decoding.messages] == [b"a", b"c"]
        assert [message.queue_offset for message, _ in decoding.skipped] == [1, 3]
        assert all("damaged" in str(cause) for _, cause in decoding.skipped)
        assert decoding.error is None

    async def test_batches_after_a_skipped_message_are_unwrapped(self) -> None:
        batch = encode_batch([Message("T", b"1"), Message("T", b"2")])
        decoding = await _decode(_broken(0) + _compressed(1, batch, _BATCH))
        assert [message.body for message in decoding.messages] == [b"1", b"2"]

    async def test_batches_of_too_many_messages_are_skipped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(message_batch, "MAX_BATCH_MESSAGES", 1)
        batch = encode_batch([Message("T", b"1"), Message("T", b"2")])
        decoding = await _decode(_compressed(0, batch, _BATCH) + _plain(2))
        assert (_offsets(decoding.messages), decoding.error) == ([2], None)
        assert "limit of 1" in str(decoding.skipped[0][1])

    async def test_a_damaged_record_ends_the_decoding(self) -> None:
        decoding = await _decode(_plain(0) + _broken(1) + b"\1" * 99 + _plain(2))
        assert _offsets(decoding.messages) == [0]
        assert [message.queue_offset for message, _ in decoding.skipped] == [1]
        assert decoding.error is not None
        assert decoding.error.position == len(_plain(0) + _broken(1))
        assert decoding.undecoded() == []

    async def test_a_record_whose_body_and_port_are_damaged_ends_the_decoding(self) -> None:
        broken = bytearray(_broken(0))
        broken[52:56] = (1 << 16).to_bytes(4, "big")
        decoding = await _decode(bytes(broken) + _plain(1))
        assert (decoding.messages, decoding.skipped) == ([], [])
        assert "port 65536" in str(decoding.error)


class TestDecodeAll:
    async def test_returns_the_messages(self) -> None:
        messages = await decode_all(_plain(0) + _compressed(1, _LARGE), _MAX_BODY)
        assert [message.body for message in messages] == [b"plain", _LARGE]

    async def test_raises_for_anything_that_cannot_be_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(DecompressionError, match="damaged"):
            await decode_all(_plain(0) + _broken(1), _MAX_BODY)
        with pytest.raises(MessageDecodeError):
            await decode_all(_plain(0) + b"\1" * 99, _MAX_BODY)
        monkeypatch.setattr(compression, "MAX_RESPONSE_BYTES", 1)
        with pytest.raises(DecompressionBudgetError):
            await decode_all(_compressed(0, b"a") * 2, _MAX_BODY)
