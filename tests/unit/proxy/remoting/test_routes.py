"""Routes that name the proxy in place of the brokers."""

from __future__ import annotations

import json

import pytest

from rmq_proxy.remoting.routes import Routes
from rmq_remoting.bodies.route import TopicRouteData
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError, HeaderError
from tests.unit.proxy.remoting.parts import Peer, brokers_of

_ROUTES: dict[str, dict[str, dict[int, str]]] = {
    "T": {"broker-a": {0: "a:10911", 1: "a-replica:10911"}, "broker-b": {0: "b:10911"}}
}
_CODE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def _routes(access_host: str = "") -> Routes:
    routes = Routes(brokers_of(_ROUTES), access_host)
    routes.port = 8080
    return routes


async def _answer(routes: Routes, request: RemotingCommand, local: str = "192.0.2.2") -> RemotingCommand:
    client = Peer().connection
    client.local_address = (local, 8080)
    answer = await routes.route(client, _CODE, request)
    assert isinstance(answer, RemotingCommand)
    assert answer.code == ResponseCode.SUCCESS
    return answer


@pytest.mark.parametrize(
    ("access_host", "local", "expected"),
    [
        ("", "192.0.2.2", "192.0.2.2:8080"),
        ("", "::1", "[::1]:8080"),
        ("proxy.example.org", "192.0.2.2", "proxy.example.org:8080"),
        ("2001:db8::1", "192.0.2.2", "[2001:db8::1]:8080"),
    ],
)
async def test_all_brokers_have_the_address_of_the_proxy(access_host: str, local: str, expected: str) -> None:
    request = RemotingCommand.request(_CODE, {"topic": "T"})
    route = TopicRouteData.decode((await _answer(_routes(access_host), request, local)).body)
    addresses = {each.broker_name: each.broker_addrs for each in route.broker_datas}
    assert addresses == {"broker-a": {0: expected, 1: expected}, "broker-b": {0: expected}}
    assert {each.broker_name for each in route.queue_datas} == {"broker-a", "broker-b"}


@pytest.mark.parametrize(
    ("version", "fields", "is_standard"),
    [
        (400, {}, False),
        (400, {"acceptStandardJsonOnly": "true"}, True),
        (401, {}, True),
        (401, {"acceptStandardJsonOnly": "false"}, True),
    ],
)
async def test_clients_since_4_9_4_get_standard_json(
    version: int, fields: dict[str, str], is_standard: bool
) -> None:
    request = RemotingCommand.request(_CODE, {"topic": "T", **fields})
    request.version = version
    body = (await _answer(_routes(), request)).body
    if is_standard:
        json.loads(body)
    else:
        with pytest.raises(ValueError):  # broker ids without quotes
            json.loads(body)


async def test_unknown_and_missing_topics_are_refused() -> None:
    client = Peer().connection
    with pytest.raises(CommandError) as refused:
        await _routes().route(client, _CODE, RemotingCommand.request(_CODE, {"topic": "absent"}))
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    with pytest.raises(HeaderError, match="topic"):
        await _routes().route(client, _CODE, RemotingCommand.request(_CODE))
