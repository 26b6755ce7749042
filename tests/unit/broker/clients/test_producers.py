"""Producer groups, as maintained by heartbeats."""

from __future__ import annotations

import logging

import pytest

from rmq_broker.clients.client import ConnectedClient
from rmq_broker.clients.producers import MAX_GROUPS, ProducerTable
from rmq_remoting.codes import LanguageCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from tests.support.clock import START_MS
from tests.support.peers import Peer


def _client(peer: Peer, client_id: str, seen_ms: int = START_MS) -> ConnectedClient:
    return ConnectedClient(peer.connection, client_id, LanguageCode.GO, 479, seen_ms)


async def test_producers_join_stay_and_leave() -> None:
    table, one, two = ProducerTable(), Peer(), Peer()
    assert table.find_group("PG") is None
    table.register_all(["PG"], _client(one, "1"))
    table.register_all(["PG"], _client(one, "1", START_MS + 5))
    table.register_all(["PG"], _client(two, "2"))
    table.register_all(["Other"], _client(one, "1"))
    members = table.find_group("PG")
    assert members is not None
    assert [(client.client_id, client.last_seen_ms) for client in members] == [
        ("1", START_MS + 5),
        ("2", START_MS),
    ]
    assert {name: len(clients) for name, clients in table.groups().items()} == {"PG": 2, "Other": 1}
    assert len(table.clients()) == 2
    assert table.unregister("PG", one.connection) and not table.unregister("PG", one.connection)
    assert not table.unregister("Unknown", one.connection)
    table.connection_closed(one.connection)
    assert list(table.groups()) == ["PG"]
    table.connection_closed(two.connection)
    assert table.groups() == {}


async def test_silent_producers_expire() -> None:
    table, one, two = ProducerTable(), Peer(), Peer()
    table.register_all(["PG"], _client(one, "1", START_MS))
    table.register_all(["PG"], _client(two, "2", START_MS + 10))
    assert [client.client_id for client in table.expire(START_MS + 10)] == ["1"]
    assert [client.client_id for client in table.clients()] == ["2"]


async def test_client_is_described_by_its_request() -> None:
    peer = Peer()
    request = RemotingCommand(34, 0, 1, language=LanguageCode.RUST, version=400)
    client = ConnectedClient.of(peer.connection, request, "me@1", START_MS)
    body = client.to_body()
    assert (body.client_id, body.language, body.version) == ("me@1", LanguageCode.RUST, 400)
    assert body.client_addr == "192.0.2.1:40000"
    request.language = 99
    assert ConnectedClient.of(peer.connection, request, "me@1", 0).language is LanguageCode.OTHER


async def test_a_producer_is_found_by_its_client_id() -> None:
    table, first, again = ProducerTable(), Peer(), Peer()
    assert table.find_client("1") is None
    table.register_all(["PG"], _client(first, "1"))
    table.register_all(["Other"], _client(first, "1"))
    found = table.find_client("1")
    assert found is not None
    assert found.connection is first.connection
    table.unregister("PG", first.connection)
    assert table.find_client("1") is not None, "it is in another group still"

    # The client reconnects before the broker notices the end of its old connection.
    table.register_all(["PG"], _client(again, "1"))
    table.connection_closed(first.connection)
    found = table.find_client("1")
    assert found is not None
    assert found.connection is again.connection
    table.expire(START_MS + 1)
    assert table.find_client("1") is None


async def test_previous_client_ids_of_a_producer_are_removed() -> None:
    table, peer = ProducerTable(), Peer()
    for number in range(10):
        table.register_all(["PG"], _client(peer, f"{number}"))
    assert [number for number in range(10) if table.find_client(f"{number}")] == [9]
    table.register_all(["Other"], _client(peer, "9"))
    table.register_all(["PG"], _client(peer, "10"))
    assert table.find_client("9") is not None, "in the other group it still has that one"
    table.connection_closed(peer.connection)
    assert not any(table.find_client(f"{number}") for number in range(11))


async def test_remaining_connection_of_a_client_id_is_found() -> None:
    table, first, second = ProducerTable(), Peer(), Peer()
    table.register_all(["PG"], _client(first, "1"))
    table.register_all(["PG"], _client(second, "1"))
    table.register_all(["PG"], _client(first, "1"))
    found = table.find_client("1")
    assert found is not None
    assert found.connection is second.connection
    table.connection_closed(second.connection)
    found = table.find_client("1")
    assert found is not None
    assert found.connection is first.connection
    table.unregister("PG", first.connection)
    assert table.find_client("1") is None


async def test_the_groups_of_a_connection_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    table, peer = ProducerTable(), Peer()
    groups = [f"PG{number:04d}" for number in range(MAX_GROUPS)]
    with caplog.at_level(logging.INFO):
        table.register_all(groups, _client(peer, "1"))
        table.register_all(groups[:10], _client(peer, "1"))
        with pytest.raises(CommandError, match="1025 producer groups on one connection, the limit is 1024"):
            table.register_all(["one more", groups[0]], _client(peer, "1"))
        assert len(table.groups()) == MAX_GROUPS
        table.connection_closed(peer.connection)
    assert table.groups() == {}
    joined, gone = [record.getMessage() for record in caplog.records]
    assert joined.endswith("groups=1024 group=PG0000, PG0001, PG0002, ..."), "one line for all"
    assert gone.startswith("producer disconnected") and gone.endswith("groups=1024")
