"""The replica's end of a connection to its master, with the event loop that brokers have."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from rmq_broker.replication.epoch_following import EpochMasterConnection
from rmq_broker.replication.epoch_protocol import ReplicaHandshake
from rmq_broker.replication.master import MasterConnection, MasterUnavailable, connected_as


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
