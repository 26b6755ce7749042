"""Access keys on the proxy's remoting port."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_client import ClientSettings, Credentials, Message, Producer
from rmq_client.errors import PermissionDenied
from rmq_proxy.proxy import Proxy
from rmq_remoting.bodies.access_control import UserInfo
from tests.integration.test_grpc_access import ACCESS, ANN, PROXY, allow
from tests.support.clusters import running_cluster
from tests.support.running_proxy import running_proxy
from tests.support.signed_requests import ROOT


def _producer(proxy: Proxy, keys: Credentials | None) -> Producer:
    return Producer(proxy.remoting_address, group="p", settings=ClientSettings(credentials=keys))


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (None, "username cannot be null"),
        (Credentials("root", "wrong"), "check signature"),
        (ANN, "permission"),
    ],
)
async def test_signatures_and_rules_count(tmp_path: Path, keys: Credentials | None, problem: str) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 1}}, **ACCESS) as cluster:
        broker = cluster.broker
        ann = UserInfo(username="ann", password="anns-secret", user_type="Normal")
        broker.services.access.tables.users.create(ann)
        async with running_proxy(cluster.address, aclCacheRefreshSeconds=1, **PROXY) as proxy:
            async with _producer(proxy, ROOT) as producer:
                await producer.send(Message("T", b"by root"))
            async with _producer(proxy, keys) as producer:
                with pytest.raises(PermissionDenied, match=problem):
                    await producer.send(Message("T", b"refused"))
        assert [each.body for each in broker.messages("T")] == [b"by root"]


async def test_a_rule_lets_a_user_send(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 1, "U": 1}}, **ACCESS) as cluster:
        broker = cluster.broker
        ann = UserInfo(username="ann", password="anns-secret", user_type="Normal")
        broker.services.access.tables.users.create(ann)
        allow(broker, "ann", ("Topic:T", "Pub"))
        async with (
            running_proxy(cluster.address, **PROXY) as proxy,
            _producer(proxy, ANN) as producer,
        ):
            await producer.send(Message("T", b"by ann"))
            with pytest.raises(PermissionDenied, match="Topic:U"):
                await producer.send(Message("U", b"refused"))
        assert [each.body for each in broker.messages("T")] == [b"by ann"]


async def test_without_keys_of_the_proxy_brokers_check_the_client(tmp_path: Path) -> None:
    wrong = ClientSettings(credentials=Credentials("root", "wrong"))
    async with (
        running_cluster(tmp_path, {"broker-a": {"T": 1}}, **ACCESS, authenticationWhitelist="105") as cluster,
        running_proxy(cluster.address) as proxy,
        Producer(proxy.remoting_address, group="p", settings=wrong) as producer,
    ):
        with pytest.raises(PermissionDenied, match="check signature"):
            await producer.send(Message("T", b"refused"))


async def test_without_keys_the_proxy_checks_no_types(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers do not tell it the types of topics; their own checks of the client remain."""
    async with (
        running_cluster(tmp_path, {"broker-a": {"T": 1}}, **ACCESS, authenticationWhitelist="105") as cluster,
        running_proxy(cluster.address) as proxy,
        _producer(proxy, ROOT) as producer,
    ):
        for number in range(3):
            await producer.send(Message("T", b"%d" % number))
        assert len(cluster.broker.messages("T")) == 3
    assert len([each for each in caplog.messages if "types of messages not checked" in each]) == 1
