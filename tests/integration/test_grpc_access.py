"""Access keys on the gRPC port: signatures, rights, and the proxy's own keys, in both forms of the proxy."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from rmq_broker.settings.broker import BrokerSettings
from rmq_client import Credentials
from rmq_proxy.apache_settings import known_keys
from rmq_proxy.daemon_settings import ProxyDaemonSettings
from rmq_proxy.local_settings import load_local_settings
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_proxy.service import NAME
from rmq_remoting.bodies.access_control import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo, UserStatus
from rmq_remoting.daemon.configuration import Override, SettingsError, load
from tests.support.clusters import ClusterBroker, RunningCluster, running_cluster
from tests.support.grpc_client import NO_ID, GrpcClient, grpc_client, message, resource
from tests.support.grpc_signatures import DATE, signature_of
from tests.support.ports import LOOPBACK, free_port
from tests.support.rows import each_row
from tests.support.running_proxy import running_proxy
from tests.support.signed_requests import AUTHENTICATION, INNER, ROOT

ANN = Credentials("ann", "anns-secret")
ACCESS = {**AUTHENTICATION, "authorizationEnabled": "true"}
OWN_KEYS = {"innerClientAuthenticationCredentials": AUTHENTICATION["innerClientAuthenticationCredentials"]}
PROXY = {"authenticationEnabled": True, "authorizationEnabled": True, **OWN_KEYS}
TIMES = {"minInvisibleTimeMillsForRecv": 0, "grpcClientConsumerMinLongPollingTimeoutMillis": 0}


def allow(
    broker: ClusterBroker, user: str, *rules: tuple[str, str], sources: list[str] | None = None
) -> None:
    """Let a user do an action on each resource."""
    entries = [
        PolicyEntryInfo(actions=[action], decision="Allow", resource=name, source_ips=sources)
        for name, action in rules
    ]
    policy = PolicyInfo(entries=entries, policy_type="Custom")
    broker.services.access.tables.acls.add(user, AclInfo(subject=f"User:{user}", policies=[policy]))


@asynccontextmanager
async def _cluster(folder: Path, **keys: object) -> AsyncIterator[tuple[RunningCluster, ClusterBroker]]:
    """A broker that serves gRPC and has the users root, inner (both super users) and ann (without rights)."""
    settings = folder / "rmq-proxy.json"
    settings.write_text(json.dumps(TIMES))
    own = {"grpcServerPort": free_port(), "proxyConfigPath": settings, **ACCESS, **keys}
    async with running_cluster(folder, {"broker-a": {"T": 1, "U": 1}}, **own) as cluster:
        broker = cluster.broker
        ann = UserInfo(username="ann", password="anns-secret", user_type="Normal")
        broker.services.access.tables.users.create(ann)
        yield cluster, broker


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[ClusterBroker]:
    async with _cluster(tmp_path) as (_, broker):
        yield broker


@pytest.fixture(params=["local", "cluster"])
async def front(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, ClusterBroker]]:
    """The address of each form of the proxy, and the broker behind it."""
    async with _cluster(tmp_path) as (cluster, broker):
        if request.param == "local":
            yield f"{LOOPBACK}:{broker.configuration.settings.grpc_server_port}", broker
        else:
            async with running_proxy(cluster.address, userCacheRefreshSeconds=1, **PROXY) as proxy:
                yield proxy.address, broker


@asynccontextmanager
async def _client(address: str, keys: Credentials | None, **how: Any) -> AsyncIterator[GrpcClient]:
    async with grpc_client(address) as client:
        client.further_metadata = [] if keys is None else signature_of(keys, **how)
        yield client


async def _route(client: GrpcClient, topic: str = "T") -> pb.Status:
    answer = await client.call("QueryRoute", rpc.QueryRouteRequest(topic=resource(topic)))
    status: pb.Status = answer.status
    return status


async def test_super_users_send_and_consume(front: tuple[str, ClusterBroker]) -> None:
    address, broker = front
    async with _client(address, ROOT) as client:
        assert (await _route(client)).code == pb.OK
        await client.consume("G", "T")
        await client.receive("G", "T")
        assert (await client.send(message("T", b"x"))).status.code == pb.OK
        received = await client.receive_all("G", "T", 1)
        assert (await client.acknowledge("G", "T", *received)).status.code == pb.OK
    assert [each.body for each in broker.messages("T")] == [b"x"]


@each_row(
    ("metadata", "problem"),
    [
        ([], "username cannot be null"),
        ([("authorization", signature_of(ROOT)[1][1])], "datetime is null"),
        ([("x-mq-date-time", DATE), ("authorization", "MQv2-HMAC-SHA1")], "header is incorrect"),
        ([("x-mq-date-time", DATE), ("authorization", "MQv2-HMAC-SHA1 Credential")], "keyValues length"),
        ([("x-mq-date-time", DATE), ("authorization", "MQv2-HMAC-SHA1 Credential=root")], "check signature"),
        (
            [("x-mq-date-time", DATE), ("authorization", "MQv2-HMAC-SHA1 Credential=root, Signature=xy")],
            "create authentication context",
        ),
        # Apache's clients without credentials.
        (
            [("x-mq-date-time", DATE), ("authorization", "MQv2-HMAC-SHA1 Credential=, Signature=00")],
            "username cannot be null",
        ),
        (
            [("x-mq-date-time", DATE), ("authorization", f"MQv2-HMAC-SHA1 Credential={'n' * 256}")],
            "at most 255 characters",
        ),
        ([("x-mq-date-time", "1" * 5000), signature_of(ROOT)[1]], "the limit is 4096"),
        (signature_of(Credentials("nobody", "s")), "User:nobody is not found"),
        (signature_of(Credentials("root", "wrong")), "check signature failed"),
        # A recorded signature is no good for another date.
        (signature_of(ROOT, "20261128T000000Z", signed_date=DATE), "check signature failed"),
    ],
)
async def test_calls_without_a_valid_signature_are_unauthorized(
    secured: ClusterBroker, metadata: list[tuple[str, str]], problem: str
) -> None:
    async with grpc_client(f"{LOOPBACK}:{secured.configuration.settings.grpc_server_port}") as client:
        client.further_metadata = metadata
        status = await _route(client)
        assert status.code == pb.UNAUTHORIZED
        assert problem in status.message
        status, messages = await client.receive("G", "T")
        assert (status.code, messages) == (pb.UNAUTHORIZED, [])
        sent = await client.send(message("T"))
        assert sent.status.code == pb.UNAUTHORIZED
        assert secured.messages("T") == []


async def test_every_method_needs_a_signature(front: tuple[str, ClusterBroker]) -> None:
    address, _ = front
    unary = [
        method.name
        for method in rpc.DESCRIPTOR.services_by_name["MessagingService"].methods
        if not method.server_streaming and not method.name.endswith("LiteSubscription")
    ]
    assert len(unary) > 10
    async with grpc_client(address, NO_ID) as client:
        for name in unary:
            answer = await client.call(name, getattr(rpc, f"{name}Request")())
            assert answer.status.code == pb.UNAUTHORIZED, name
        status, _, _ = await client.pull(rpc.PullMessageRequest())
        assert status.code == pb.UNAUTHORIZED


async def test_a_telemetry_stream_without_a_signature_is_told_and_ended(
    front: tuple[str, ClusterBroker],
) -> None:
    address, _ = front
    async with _client(address, Credentials("root", "wrong")) as client:
        await client.produce("T")
        assert await client.status_of_stream() is grpc.StatusCode.OK
        assert client.commands.empty()


async def test_users_may_do_what_their_rules_allow(front: tuple[str, ClusterBroker]) -> None:
    address, broker = front
    async with _client(address, ANN) as client:
        status = await _route(client)
        assert status.code == pb.UNAUTHORIZED
        assert "User:ann has no permission to access Topic:T from 127.0.0.1 (Pub or Sub)" in status.message
    allow(broker, "ann", ("Topic:T", "Pub"))
    allow(broker, "ann", ("Group:G", "Sub"))
    async with _client(address, ANN) as client:
        assert (await _eventually_routed(client)).code == pb.OK
        assert (await client.send(message("T", b"x"))).status.code == pb.OK
        # Each message of a send counts.
        refused = await client.send(message("T"), message("U"))
        assert (refused.status.code, "Topic:U" in refused.status.message) == (pb.UNAUTHORIZED, True)
        status, _ = await client.receive("G", "T")
        assert (status.code, "Topic:T" in status.message) == (pb.UNAUTHORIZED, True)
        # A header of Apache's proxy that names the user must not make another one of ann.
        client.further_metadata.append(("x-mq-authorization-ak", "root"))
        assert (await _route(client, "U")).code == pb.UNAUTHORIZED
    assert [each.body for each in broker.messages("T")] == [b"x"]


async def _eventually_routed(client: GrpcClient) -> pb.Status:
    """Return the status of a route once the proxy has the new rules; it asks for them in the background."""
    while (status := await _route(client)).code == pb.UNAUTHORIZED:
        pass
    return status


async def test_rules_count_for_addresses(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as (_, broker):
        address = f"{LOOPBACK}:{broker.configuration.settings.grpc_server_port}"
        allow(broker, "ann", ("Topic:T", "Pub"), sources=["10.0.0.0/8"])
        async with _client(address, ANN) as client:
            assert (await _route(client)).code == pb.UNAUTHORIZED
            allow(broker, "ann", ("Topic:T", "Pub"), sources=["127.0.0.0/8"])
            assert (await _route(client)).code == pb.OK


async def test_a_disabled_user_is_refused_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as (_, broker):
        allow(broker, "ann", ("Topic:T", "Pub"))
        async with _client(f"{LOOPBACK}:{broker.configuration.settings.grpc_server_port}", ANN) as client:
            assert (await client.produce("T")).publishing.max_body_size > 0
            disabled = UserInfo(username="ann", user_status=UserStatus.DISABLE.value)
            broker.services.access.tables.users.update(disabled)
            status = await _route(client)
            assert (status.code, status.message) == (pb.UNAUTHORIZED, "User:ann is disabled.")
            await client.produce("T")
            assert await client.status_of_stream() is grpc.StatusCode.OK


async def test_requests_of_the_white_lists_need_nothing(tmp_path: Path) -> None:
    name = "apache.rocketmq.v2.QueryRouteRequest"
    async with _cluster(tmp_path) as (cluster, _):
        lists = {"authenticationWhitelist": name, "authorizationWhitelist": name}
        async with (
            running_proxy(cluster.address, **PROXY, **lists) as proxy,
            grpc_client(proxy.address) as client,
        ):
            assert (await _route(client)).code == pb.OK
            assert (await client.send(message("T"))).status.code == pb.UNAUTHORIZED
        lists = {"authenticationWhitelist": name}
        async with (
            running_proxy(cluster.address, **PROXY, **lists) as proxy,
            grpc_client(proxy.address) as client,
        ):
            assert (await _route(client)).code == pb.UNAUTHORIZED
            client.further_metadata = signature_of(ROOT)
            assert (await _route(client)).code == pb.OK


async def test_a_proxy_without_the_keys_of_a_super_user_admits_nobody(tmp_path: Path) -> None:
    """Brokers show it no passwords, so it can check no signature."""
    async with _cluster(tmp_path) as (cluster, broker):
        allow(broker, "ann", ("Cluster:*", "All"))
        keys = json.dumps({"accessKey": ANN.access_key, "secretKey": ANN.secret_key})
        own = {"authenticationEnabled": True, "innerClientAuthenticationCredentials": keys}
        async with running_proxy(cluster.address, **own) as proxy, _client(proxy.address, ROOT) as client:
            status = await _route(client)
        assert status.code == pb.INTERNAL_SERVER_ERROR
        assert "must be the keys of a super user" in status.message


async def test_a_telemetry_stream_of_a_user_that_no_broker_tells_ends_with_the_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _cluster(tmp_path) as (cluster, broker):
        allow(broker, "ann", ("Cluster:*", "All"))
        keys = json.dumps({"accessKey": ANN.access_key, "secretKey": ANN.secret_key})
        own = {"authenticationEnabled": True, "innerClientAuthenticationCredentials": keys}
        async with running_proxy(cluster.address, **own) as proxy, grpc_client(proxy.address) as client:
            stream = client.channel.stream_stream(f"/{NAME}/Telemetry")(
                metadata=[("x-mq-client-id", "client-1"), *signature_of(ROOT)]
            )
            await stream.write(rpc.TelemetryCommand(settings=pb.Settings()).SerializeToString())
            assert await stream.code() is grpc.StatusCode.UNAVAILABLE
            assert "must be the keys of a super user" in await stream.details()
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_the_proxy_signs_its_requests_with_its_own_keys(tmp_path: Path) -> None:
    """Without access control of its own a proxy lets everyone use its rights."""
    async with _cluster(tmp_path) as (cluster, broker):
        async with running_proxy(cluster.address) as proxy, grpc_client(proxy.address) as client:
            assert (await client.send(message("T"))).status.code != pb.OK
        async with running_proxy(cluster.address, **OWN_KEYS) as proxy, grpc_client(proxy.address) as client:
            assert (await client.send(message("T", b"x"))).status.code == pb.OK
        assert [each.body for each in broker.messages("T")] == [b"x"]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"authenticationEnabled": "true"}, "needs innerClientAuthenticationCredentials"),
        ({"enableAclRpcHookForClusterMode": "true"}, "needs innerClientAuthenticationCredentials"),
        ({"authorizationEnabled": "true", **OWN_KEYS}, "set authenticationEnabled=true, too"),
        ({"innerClientAuthenticationCredentials": "{}"}, "must be {"),
        ({"authenticationProvider": "org.example.Other"}, "must be empty or org.apache"),
        ({"authorizationStrategy": "org.example.Other"}, "must be empty or org.apache"),
        ({"authenticationWhitelist": "QueryRoute"}, "is no request of apache.rocketmq.v2"),
    ],
)
def test_settings_that_cannot_protect_are_refused(keys: dict[str, str], problem: str) -> None:
    overrides = [Override(key, value) for key, value in keys.items()]
    with pytest.raises(SettingsError, match=problem):
        load(ProxyDaemonSettings, overrides=overrides, known_keys=known_keys)


def test_apaches_classes_of_access_control_are_accepted() -> None:
    auth, own = "org.apache.rocketmq.auth", "org.apache.rocketmq.proxy.auth"
    keys = {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{auth}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{own}.ProxyAuthenticationMetadataProvider",
        "authorizationEnabled": "true",
        "authorizationProvider": f"{auth}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{own}.ProxyAuthorizationMetadataProvider",
        "initAuthenticationUser": '{"username": "root", "password": "roots-secret"}',
        "enableAclRpcHookForClusterMode": "true",
        **OWN_KEYS,
    }
    overrides = [Override(key, str(value)) for key, value in keys.items()]
    loaded = load(ProxyDaemonSettings, overrides=overrides, known_keys=known_keys)
    assert loaded.settings.own_keys is not None
    assert loaded.settings.own_keys.access_key == INNER.access_key
    assert any("initAuthenticationUser has no effect" in note for note in loaded.notes)
    assert "secret" not in loaded.to_text()


@pytest.mark.parametrize("key", ["authenticationEnabled", "authorizationEnabled"])
def test_a_broker_without_access_control_refuses_a_proxy_file_that_asks_for_it(
    key: str, tmp_path: Path
) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text(json.dumps({key: True}))
    with pytest.raises(SettingsError, match="set this key in the broker's settings"):
        load_local_settings(file, {"authenticationEnabled": "false", "authorizationEnabled": "false"})


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"authenticationEnabled": "true"}, "needs innerClientAuthenticationCredentials"),
        ({**ACCESS, "signatureReplayWindowSeconds": "60"}, "signatureReplayWindowSeconds cannot protect"),
    ],
)
def test_a_broker_refuses_grpc_that_would_be_a_way_around_its_protection(
    keys: dict[str, object], problem: str
) -> None:
    overrides = [Override(key, str(value)) for key, value in {"grpcServerPort": "8081", **keys}.items()]
    with pytest.raises(SettingsError, match=problem):
        load(BrokerSettings, overrides=overrides)
