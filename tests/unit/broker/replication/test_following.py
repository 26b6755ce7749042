"""What a replica does with a transfer, and in which order."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from rmq_broker.registration.master_address import MasterAddress
from rmq_broker.replication.following import Follower
from rmq_broker.replication.lookup import MasterLookup
from rmq_broker.replication.master import MasterConnection
from rmq_broker.replication.protocol import report, transfer_head
from rmq_broker.store.api import MessageStore, StoreUnavailable
from rmq_remoting.client import RemotingClient
from tests.support.broker_settings import broker_settings
from tests.support.transports import FakeTransport
from tests.support.waiting import loop_passes, until

_MASTER = MasterAddress("127.0.0.1:10912", "127.0.0.1:10911")


class _Store:
    """Notes its calls."""

    flushes_synchronously = False

    def __init__(self) -> None:
        self.events: list[str] = []
        self.end = 0
        self.failure: OSError | None = None
        self.refusal: Exception | None = None

    def append_data(self, offset: int, data: bytes) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.events.append(f"append {offset}")
        self.end = offset + len(data)

    def enter_data(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.events.append("enter")

    def max_phy_offset(self) -> int:
        return self.end

    def flush_log(self) -> None:
        pass


class _Lookup:
    known: MasterAddress | None = _MASTER

    async def find(self) -> MasterAddress | None:
        return self.known


class _Following:
    """A replica that follows a master from offset 0."""

    def __init__(self) -> None:
        self.store, self.lookup = _Store(), _Lookup()
        self.follower = Follower(
            broker_settings(brokerRole="SLAVE", brokerId=1),
            cast(MessageStore, self.store),
            cast(RemotingClient, None),
            cast(MasterLookup, self.lookup),
            lambda: 0,
            lambda: None,
        )
        self.connection = MasterConnection(5)
        self.transport = FakeTransport(self.connection)
        self.staying = asyncio.ensure_future(self.follower._stay(_MASTER, self.connection, 0))

    def sends(self, offset: int, data: bytes) -> None:
        """Let a transfer arrive."""
        self.connection.data_received(transfer_head(offset, len(data)) + data)


async def test_the_master_hears_of_a_transfer_before_its_messages_are_entered() -> None:
    """Producers wait for the report."""
    replica = _Following()
    await loop_passes(1)
    assert replica.transport.writes == [report(0)]
    replica.sends(0, b"12345")
    assert replica.store.events == ["append 0"]
    assert replica.transport.writes == [report(0), report(5)]
    await loop_passes(1)
    assert replica.store.events == ["append 0", "enter"]
    replica.sends(5, b"")  # a heartbeat
    await loop_passes(1)
    assert (replica.store.events, len(replica.transport.writes)) == (["append 0", "enter"], 2)
    replica.staying.cancel()


async def test_messages_that_cannot_be_entered_end_the_connection() -> None:
    replica = _Following()
    await loop_passes(1)
    replica.store.failure = OSError(28, "No space left on device")
    replica.sends(0, b"12345")
    with pytest.raises(OSError, match="No space left"):
        await replica.staying
    assert replica.transport.aborted


async def test_a_replica_leaves_a_master_that_is_one_no_longer() -> None:
    replica = _Following()
    await loop_passes(1)
    replica.lookup.known = MasterAddress("127.0.0.2:10912", "127.0.0.2:10911")
    replica.sends(0, b"12345")
    await replica.staying
    assert not replica.store.events
    assert replica.transport.aborted


_TRANSFER = transfer_head(0, 5) + b"12345"


@pytest.mark.parametrize(
    ("sent", "refusal", "cause"),
    [
        (b"", None, "the master ended the connection"),
        (transfer_head(-1, 5), None, "a transfer of 5 bytes at log offset -1"),
        (_TRANSFER, StoreUnavailable("too full"), "the store takes nothing: too full"),
        (_TRANSFER, OSError("the disk failed"), "the disk failed"),
        (_TRANSFER, ValueError("no record"), "the master's bytes are refused: no record"),
    ],
    ids=["connection", "protocol", "store", "disk", "log"],
)
async def test_the_log_says_why_a_replica_does_not_follow(
    sent: bytes, refusal: Exception | None, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(report(0)))
        writer.write(sent)
        writer.close()

    replica = _Following()
    replica.staying.cancel()
    replica.store.refusal = refusal
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        replica.lookup.known = MasterAddress(f"127.0.0.1:{port}", "")
        following = asyncio.ensure_future(replica.follower.run())
        await until(lambda: "not following a master" in caplog.text)
        following.cancel()
        await asyncio.wait([following])
    replica.follower.close()
    assert f"cause={cause}" in caplog.text
    assert not replica.follower.status.is_connected
