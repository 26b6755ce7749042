"""The master's end of a connection to a replica."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rmq_broker.replication.protocol import Transfer, TransferReader, report
from rmq_broker.replication.sending import ReplicaConnection
from tests.support.broker_settings import broker_settings
from tests.support.stores import opened, put
from tests.support.transports import FakeTransport
from tests.support.waiting import loop_passes, until


async def test_nothing_is_sent_before_the_first_report(tmp_path: Path) -> None:
    """Only the report says where the replica's log ends. The master's log may grow before it arrives."""
    store = opened(tmp_path)
    put(store)
    log_end = store.max_phy_offset()
    with ThreadPoolExecutor(1) as executor:
        connection = ReplicaConnection(
            store, broker_settings(), executor, lambda connection, host: None, lambda connection: None
        )
        transport = FakeTransport(connection)
        put(store)
        connection.send_soon()
        await loop_passes()
        connection.data_received(report(log_end))
        await until(lambda: transport.writes or transport.aborted)
    new = store.log_bytes(log_end, store.max_phy_offset() - log_end)
    assert new is not None
    assert TransferReader().feed(b"".join(transport.writes)) == [Transfer(log_end, new)]
    store.close()
