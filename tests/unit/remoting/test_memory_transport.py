"""Connections within one process: bytes, flow control and ends are those of sockets."""

from __future__ import annotations

import asyncio

from rmq_remoting.memory_transport import MemoryTransport, connect_in_memory


class _Side(asyncio.Protocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.received = b""
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, MemoryTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        assert exc is None
        self.told.append("lost")
        self.ended.set_result(None)


def _connected() -> tuple[_Side, _Side]:
    one, other = _Side(), _Side()
    connect_in_memory(asyncio.get_running_loop(), one, ("127.0.0.1", 0), other, ("127.0.0.1", 10911))
    return one, other


async def _iterations(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_each_side_sees_the_address_of_the_other() -> None:
    one, other = _connected()
    assert one.transport.get_extra_info("peername") == ("127.0.0.1", 10911)
    assert other.transport.get_extra_info("peername") == ("127.0.0.1", 0)
    assert one.transport.get_extra_info("socket") is None


async def test_bytes_arrive_in_order_and_not_within_the_write() -> None:
    one, other = _connected()
    one.transport.write(b"a")
    one.transport.writelines([b"b", b"c"])
    other.transport.write(b"x")
    assert (one.received, other.received) == (b"", b"")
    await _iterations()
    assert (one.received, other.received) == (b"x", b"abc")


async def test_bytes_that_were_written_are_those_that_arrive() -> None:
    one, other = _connected()
    data = bytearray(b"abc")
    one.transport.write(data)
    data[0] = 0
    await _iterations()
    assert other.received == b"abc"


async def test_a_side_that_does_not_read_pauses_the_writer() -> None:
    one, other = _connected()
    one.transport.set_write_buffer_limits(high=10, low=5)
    other.transport.pause_reading()
    one.transport.write(b"x" * 10)
    assert one.told == []
    one.transport.write(b"x")
    await _iterations()
    assert (one.told, one.transport.get_write_buffer_size(), other.received) == (["pause"], 11, b"")
    assert not other.transport.is_reading()

    other.transport.resume_reading()
    await _iterations()
    assert (one.told, one.transport.get_write_buffer_size(), other.received) == (
        ["pause", "resume"],
        0,
        b"x" * 11,
    )


async def test_a_close_delivers_what_was_written_before() -> None:
    one, other = _connected()
    other.transport.pause_reading()
    one.transport.write(b"last")
    one.transport.close()
    one.transport.write(b"too late")
    await _iterations()
    assert (one.transport.is_closing(), one.told, other.told) == (True, [], [])

    other.transport.resume_reading()
    await asyncio.gather(one.ended, other.ended)
    assert (other.received, one.told, other.told) == (b"last", ["lost"], ["lost"])
    assert other.transport.is_closing()


async def test_an_abort_drops_what_was_written_before() -> None:
    one, other = _connected()
    one.transport.write(b"lost")
    one.transport.abort()
    await asyncio.gather(one.ended, other.ended)
    assert other.received == b""


async def test_a_side_may_close_while_both_have_written() -> None:
    one, other = _connected()
    one.transport.write(b"request")
    other.transport.write(b"answer")
    one.transport.close()
    await asyncio.gather(one.ended, other.ended)
    assert other.received == b"request"
    other.transport.close()
    other.transport.write(b"nobody")
    await _iterations()
    assert (one.told, other.told) == (["lost"], ["lost"])


async def test_an_abort_of_a_closing_side_ends_the_wait_for_the_reader() -> None:
    one, other = _connected()
    other.transport.pause_reading()
    one.transport.write(b"x")
    one.transport.close()
    await _iterations()
    one.transport.abort()
    await asyncio.gather(one.ended, other.ended)
