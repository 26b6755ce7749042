"""The processor table of the remoting port, and the settings that it follows."""

from __future__ import annotations

from typing import cast

import pytest

from rmq_proxy.brokers import Brokers
from rmq_proxy.daemon_settings import ProxyDaemonSettings
from rmq_proxy.metadata import Metadata
from rmq_proxy.remoting.port import RemotingPort
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.dispatch import Registration

# A request code of each kind, by the part of Apache's keys that names the kind.
_KINDS = {
    "Send": Code.SEND_MESSAGE_V2,
    "Pull": Code.PULL_MESSAGE,
    "Heartbeat": Code.HEART_BEAT,
    "UpdateOffset": Code.UPDATE_CONSUMER_OFFSET,
    "TopicRoute": Code.GET_ROUTEINFO_BY_TOPIC,
    "Default": Code.GET_MAX_OFFSET,
}


def _table(**keys: object) -> dict[int, Registration]:
    settings = ProxyDaemonSettings.model_validate({"namesrvAddr": "127.0.0.1:1", **keys})
    port = RemotingPort(
        settings,
        cast(Brokers, None),
        cast(Metadata, None),
        None,
        lambda dispatcher, on_close: RemotingClient(dispatcher, on_close=on_close),
        lambda transport, first: transport.abort(),
    )
    return {row.code: row for row in port.dispatcher.registrations()}


@pytest.mark.parametrize("kind", _KINDS)
async def test_each_kind_of_requests_has_its_own_bounds(kind: str) -> None:
    keys = {
        f"remoting{kind}ThreadPoolQueueCapacity": 7,
        f"remotingWaitTimeMillsIn{kind}Queue": 8,
    }
    table = _table(**keys)
    for name, code in _KINDS.items():
        tier = table[code].tier
        assert ((tier.capacity, tier.max_wait_ms) == (7, 8)) is (name == kind), name


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        ("Send", [Code.SEND_MESSAGE, Code.SEND_BATCH_MESSAGE, Code.CONSUMER_SEND_MSG_BACK]),
        ("Send", [Code.END_TRANSACTION, Code.RECALL_MESSAGE, Code.SEND_REPLY_MESSAGE_V2]),
        ("Pull", [Code.LITE_PULL_MESSAGE, Code.POP_MESSAGE, Code.NOTIFICATION, Code.PEEK_MESSAGE]),
        ("UpdateOffset", [Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME, Code.BATCH_ACK_MESSAGE]),
        ("UpdateOffset", [Code.GET_CONSUMER_CONNECTION_LIST]),
        ("Default", [Code.UNREGISTER_CLIENT, Code.CHECK_CLIENT_CONFIG, Code.GET_CONSUMER_LIST_BY_GROUP]),
        ("Default", [Code.QUERY_ASSIGNMENT, Code.GET_MIN_OFFSET, Code.SEARCH_OFFSET_BY_TIMESTAMP]),
        ("Default", [Code.GET_EARLIEST_MSG_STORETIME, Code.QUERY_CONSUMER_OFFSET]),
        ("Default", [Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ]),
    ],
)
async def test_requests_share_the_bounds_of_their_kind(kind: str, codes: list[Code]) -> None:
    """The kinds are those of Apache RocketMQ 5.3.3, RemotingProtocolServer.registerRemotingServer."""
    table = _table()
    for code in codes:
        assert table[code].tier is table[_KINDS[kind]].tier, code.name
