"""The replica's end of a connection to its master, with the event loop that brokers have."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from rmq_broker.replication.epoch_following import EpochMasterConnection
from rmq_broker.replication.epoch_protocol import ReplicaHandshake
from rmq_broker.replication.master import MasterConnection, MasterUnavailable, connected, connected_as
from rmq_broker.replication.protocol import ReplicationProtocolError, Transfer, transfer_head
from tests.support.transports import FakeTransport
from tests.support.waiting import loop_passes


@pytest.mark.parametrize("kind", [MasterConnection, EpochMasterConnection])
@pytest.mark.parametrize("end", ["abort", "peer"])
def test_a_connection_that_has_ended_says_so_to_the_reader_and_not_to_the_writer(
    kind: type[MasterConnection], end: str
) -> None:
    async def report_after_the_end() -> None:
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if end == "peer":
                writer.transport.abort()
            await ended.wait()
            writer.transport.abort()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with connected_as(kind, f"127.0.0.1:{port}", 5) as connection:
                if end == "abort":
                    connection.abort()
                with pytest.raises(MasterUnavailable):
                    await connection.receive()
                connection.report(8)
                if isinstance(connection, EpochMasterConnection):
                    with pytest.raises(MasterUnavailable):
                        await connection.greet(ReplicaHandshake(False, False, 1))
                ended.set()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(report_after_the_end())


def _sent(*transfers: tuple[int, bytes]) -> bytes:
    return b"".join(transfer_head(offset, len(data)) + data for offset, data in transfers)


class _Master:
    """The other end of a connection."""

    def __init__(self, silence_seconds: float = 5) -> None:
        self.connection = MasterConnection(silence_seconds)
        self.transport = FakeTransport(self.connection)

    def sends(self, *transfers: tuple[int, bytes]) -> None:
        self.connection.data_received(_sent(*transfers))


async def test_transfers_are_delivered_one_in_an_iteration() -> None:
    """Consumers of a replica that has much to copy are served between them."""
    master, taken = _Master(), list[Transfer]()
    master.sends((0, b"before"))
    delivering = asyncio.ensure_future(master.connection.deliver(taken.append))
    await loop_passes(1)
    assert taken == [(0, b"before")]
    whole = _sent((6, b"a"), (7, b"b"), (8, b""), (8, b"c"))
    master.connection.data_received(whole[:-1])
    assert taken[1:] == [(6, b"a")]
    assert not master.transport.reading
    await loop_passes(1)
    assert taken[1:] == [(6, b"a"), (7, b"b")]
    await loop_passes(1)
    assert taken[1:] == [(6, b"a"), (7, b"b"), (8, b"")]
    assert master.transport.reading
    master.connection.data_received(whole[-1:])
    assert taken[4:] == [(8, b"c")]
    master.connection.leave()
    await delivering
    assert master.transport.aborted


async def test_an_error_of_the_taker_ends_the_connection() -> None:
    master = _Master()

    def take(transfer: Transfer) -> None:
        raise OSError(28, "No space left on device")

    delivering = asyncio.ensure_future(master.connection.deliver(take))
    await loop_passes(1)
    master.sends((0, b"a"), (1, b"b"))
    with pytest.raises(OSError, match="No space left"):
        await delivering
    assert master.transport.aborted


async def test_bytes_that_are_no_transfer_end_the_connection() -> None:
    master = _Master()
    delivering = asyncio.ensure_future(master.connection.deliver(lambda transfer: None))
    await loop_passes(1)
    master.connection.data_received(transfer_head(-1, 5))
    with pytest.raises(ReplicationProtocolError):
        await delivering


@pytest.mark.parametrize("delivers", [False, True])
async def test_a_silent_master_is_left(delivers: bool) -> None:
    master = _Master(silence_seconds=0.05)
    connection = master.connection
    with pytest.raises(MasterUnavailable, match="silent for 0 s"):
        await (connection.deliver(lambda transfer: None) if delivers else connection.receive())
    assert master.transport.aborted


async def test_the_bytes_that_wait_to_be_received_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq_broker.replication.master._MAX_UNREAD_BYTES", 100)
    master = _Master()
    master.sends((0, b"a" * 80))
    assert master.transport.reading
    master.sends((80, b"b" * 80))
    assert not master.transport.reading
    assert await master.connection.receive() == [(0, b"a" * 80), (80, b"b" * 80)]
    assert master.transport.reading


async def test_an_address_without_a_server_is_said() -> None:
    with pytest.raises(MasterUnavailable, match="no connection to"):
        async with connected("127.0.0.1:1", 5):
            pass
