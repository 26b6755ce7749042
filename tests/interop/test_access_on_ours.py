"""Apache's clients and mqadmin with a broker of this project that has access control."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rmq_client import Admin, ClientSettings, Credentials
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.interop.checks import bodies_of, check_sends_and_consumes
from tests.interop.clusters import Own, flawless_cluster
from tests.interop.foreign import AdminOutput, ForeignClient, GoClient, JavaClient, NodeClient
from tests.support.apache import ApacheBroker
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.raw_client import raw_client
from tests.support.signed_requests import ask_as
from tests.support.toolchain import JavaProgram, NodeProgram

_MqAdmin = Callable[..., Awaitable[AdminOutput]]
_MqAdminAs = Callable[[Own, Credentials], _MqAdmin]
_AUTH = "org.apache.rocketmq.auth"
_ROOT = Credentials("root", "roots-secret")
# The settings that Apache's documentation gives for its broker.
_SETTINGS = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "roots-secret"}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "inners-secret"}),
}
# Not a setting of Apache's; its clients work with it, too.
_IN_A_WINDOW = {**_SETTINGS, "signatureReplayWindowSeconds": "60"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Own]:
    with flawless_cluster(_IN_A_WINDOW) as cluster:
        yield cluster


@pytest.fixture
async def guarded_topic(guarded: Own, name: str) -> str:
    async with Admin(guarded[0].address, settings=ClientSettings(credentials=_ROOT)) as admin:
        await admin.create_topic(name, queues=4)
    return name


def _java_properties(keys: Credentials) -> dict[str, str]:
    return {"interop.accessKey": keys.access_key, "interop.secretKey": keys.secret_key}


@pytest.fixture
def mqadmin_as(java_program: JavaProgram, tmp_path: Path) -> Iterator[_MqAdminAs]:
    """Apache's tool with access keys, which are in the file where it looks for them."""
    with ExitStack() as shells:

        def mqadmin(cluster: Own, keys: Credentials) -> _MqAdmin:
            home = tmp_path / f"mqadmin-{keys.secret_key}"
            (home / "conf").mkdir(parents=True)
            tools = home / "conf" / "tools.yml"
            tools.write_text(f"accessKey: {keys.access_key}\nsecretKey: {keys.secret_key}\n")
            return shells.enter_context(JavaClient(java_program, cluster[0].address, home).shell()).mqadmin

        yield mqadmin


def _key_options(keys: Credentials | None) -> list[str]:
    return [] if keys is None else ["--access-key", keys.access_key, "--secret-key", keys.secret_key]


@pytest.fixture
async def useless(guarded: Own, name: str) -> dict[str, Credentials | None]:
    """Credentials of clients that may do nothing, each under the reason."""
    disabled, without_rules = Credentials(f"d-{name}", "a-secret"), Credentials(f"w-{name}", "a-secret")
    async with raw_client(int(guarded[1].address.rpartition(":")[2])) as client:
        for keys, status in ((disabled, "disable"), (without_rules, "enable")):
            body = {"password": keys.secret_key, "userType": "Normal", "userStatus": status}
            made = await ask_as(
                client, RequestCode.AUTH_CREATE_USER, {"username": keys.access_key}, body, keys=_ROOT
            )
            assert made.code == ResponseCode.SUCCESS
    return {
        "missing": None,
        "wrong": Credentials("root", "wrong"),
        "disabled": disabled,
        "without rules": without_rules,
    }


async def _check_refused(client: ForeignClient, topic: str) -> str:
    """Expect that a client sends nothing; return its error as text."""
    refused = await client.run("send", topic=topic, count=1)
    assert refused.error is not None
    return json.dumps(refused.error)


async def _check_nothing_sent(address: str, topic: str) -> None:
    async with Admin(address, settings=ClientSettings(credentials=_ROOT)) as admin:
        assert all(stats.max_offset == 0 for stats in (await admin.topic_stats(topic)).values())


@pytest.mark.java
@pytest.mark.parametrize("header", ["JSON", "ROCKETMQ"])
async def test_java(
    java_program: JavaProgram, guarded: Own, guarded_topic: str, tmp_path: Path, header: str
) -> None:
    address, home = guarded[0].address, tmp_path / "java"
    client = JavaClient(java_program, address, home, header=header, properties=_java_properties(_ROOT))
    await check_sends_and_consumes(client, guarded_topic)
    with client.shell() as shell:
        for mode in ("sync", "async", "oneway"):
            (await shell.run("send", topic=guarded_topic, count=50, mode=mode, tag=mode)).check()
        received = await shell.run("pull", topic=guarded_topic, group="p", tag="async", count=50)
        assert len(bodies_of(received.check())) == 50


@pytest.mark.java
async def test_java_with_useless_credentials(
    java_program: JavaProgram,
    guarded: Own,
    guarded_topic: str,
    useless: dict[str, Credentials | None],
    tmp_path: Path,
) -> None:
    for keys in useless.values():
        properties = {} if keys is None else _java_properties(keys)
        client = JavaClient(java_program, guarded[0].address, tmp_path / "java", properties=properties)
        assert "CODE: 16" in await _check_refused(client, guarded_topic)
    await _check_nothing_sent(guarded[0].address, guarded_topic)


@pytest.mark.go
async def test_go(go_program: Path, guarded: Own, guarded_topic: str, tmp_path: Path) -> None:
    address, home = guarded[0].address, tmp_path / "go"
    await check_sends_and_consumes(
        GoClient(go_program, address, home, options=_key_options(_ROOT)), guarded_topic
    )


@pytest.mark.go
async def test_go_with_useless_credentials(
    go_program: Path,
    guarded: Own,
    guarded_topic: str,
    useless: dict[str, Credentials | None],
    tmp_path: Path,
) -> None:
    address, home = guarded[0].address, tmp_path / "go"
    for keys in useless.values():
        client = GoClient(go_program, address, home, options=_key_options(keys))
        await _check_refused(client, guarded_topic)
    await _check_nothing_sent(address, guarded_topic)


@pytest.mark.node
async def test_node(node_program: NodeProgram, guarded: Own, guarded_topic: str, tmp_path: Path) -> None:
    client = NodeClient(node_program, guarded[0].address, tmp_path / "node", options=_key_options(_ROOT))
    await check_sends_and_consumes(client, guarded_topic)


@pytest.mark.node
async def test_node_with_useless_credentials(
    node_program: NodeProgram,
    guarded: Own,
    guarded_topic: str,
    useless: dict[str, Credentials | None],
    tmp_path: Path,
) -> None:
    address, home = guarded[0].address, tmp_path / "node"
    for keys in useless.values():
        client = NodeClient(node_program, address, home, options=_key_options(keys))
        await _check_refused(client, guarded_topic)
    await _check_nothing_sent(address, guarded_topic)


@pytest.mark.java
async def test_mqadmin_administrates_users(mqadmin_as: _MqAdminAs, guarded: Own) -> None:
    admin = mqadmin_as(guarded, _ROOT)
    cluster = ["-c", "DefaultCluster"]
    (await admin("createUser", *cluster, "-u", "anna", "-p", "annas-secret", "-t", "Normal")).check()
    rows = {row[0]: row[1:] for row in (await admin("listUser", *cluster)).check().rows}
    assert rows["anna"] == ["annas-secret", "Normal", "enable"]
    assert rows["root"][1] == "Super"
    (await admin("updateUser", *cluster, "-u", "anna", "-s", "disable")).check()
    shown = (await admin("getUser", *cluster, "-u", "anna")).check()
    assert ["anna", "annas-secret", "Normal", "disable"] in shown.rows
    (await admin("deleteUser", *cluster, "-u", "anna")).check()
    assert "anna" not in (await admin("listUser", *cluster)).check().text
    other = mqadmin_as(guarded, Credentials("root", "wrong"))
    assert (await other("listUser", *cluster)).failed


@pytest.mark.java
@pytest.mark.go
@pytest.mark.long
async def test_rules_made_by_mqadmin_count_for_every_client(
    mqadmin_as: _MqAdminAs,
    java_program: JavaProgram,
    go_program: Path,
    guarded: Own,
    guarded_topic: str,
    tmp_path: Path,
) -> None:
    user = Credentials(f"u-{guarded_topic}", "users-secret")
    admin = mqadmin_as(guarded, _ROOT)
    cluster, subject = ["-c", "DefaultCluster"], ["-s", f"User:{user.access_key}"]
    named = ["-u", user.access_key, "-p", user.secret_key, "-t", "Normal"]
    (await admin("createUser", *cluster, *named)).check()
    java = JavaClient(java_program, guarded[0].address, tmp_path / "java", properties=_java_properties(user))
    go = GoClient(go_program, guarded[0].address, tmp_path / "go", options=_key_options(user))
    for client in (java, go):
        refused = await client.run("send", topic=guarded_topic, count=1)
        assert refused.error is not None
    for resource, actions in ((f"Topic:{guarded_topic}", "Pub,Sub"), (f"Group:{guarded_topic}*", "Sub")):
        rule = ["-r", resource, "-a", actions, "-d", "Allow"]
        (await admin("createAcl", *cluster, *subject, *rule)).check()
    for client in (java, go):
        sent = await client.run("send", topic=guarded_topic, count=3, tag="A")
        sent.check()
    received = await java.run("consume", topic=guarded_topic, group=f"{guarded_topic}-j", count=6)
    assert len(bodies_of(received.check())) == 6
    received = await go.run("consume", topic=guarded_topic, group=f"{guarded_topic}-g", count=6)
    assert len(bodies_of(received.check())) == 6
    shown = (await admin("getAcl", *cluster, *subject)).check()
    assert f"Topic:{guarded_topic}" in shown.text
    assert f"Group:{guarded_topic}*" in shown.text
    (
        await admin(
            "updateAcl", *cluster, *subject, "-r", f"Topic:{guarded_topic}", "-a", "Sub", "-d", "Allow"
        )
    ).check()
    for client in (java, go):
        refused = await client.run("send", topic=guarded_topic, count=1)
        assert refused.error is not None
    (await admin("deleteAcl", *cluster, *subject)).check()
    assert f"Topic:{guarded_topic}" not in (await admin("listAcl", *cluster)).text


@pytest.mark.java
@pytest.mark.long
async def test_users_and_rules_are_copied_to_another_broker(
    mqadmin_as: _MqAdminAs, guarded: Own, name: str
) -> None:
    user, subject = f"u-{name}", f"User:u-{name}"
    admin = mqadmin_as(guarded, _ROOT)
    source = guarded[1].address
    (await admin("createUser", "-b", source, "-u", user, "-p", "users-secret", "-t", "Normal")).check()
    rule = ["-r", "Topic:T", "-a", "Pub", "-d", "Deny", "-i", "10.0.0.0/8"]
    (await admin("createAcl", "-b", source, "-s", subject, *rule)).check()
    async with OwnBroker(guarded[0].address, broker_name="broker-b", settings=_SETTINGS) as target:
        both = ["-f", source, "-t", target.address]
        (await admin("copyUser", *both, "-u", user)).check()
        (await admin("copyAcl", *both, "-s", subject)).check()
        shown = (await admin("getUser", "-b", target.address, "-u", user)).check()
        assert [user, "users-secret", "Normal", "enable"] in shown.rows
        shown = (await admin("getAcl", "-b", target.address, "-s", subject)).check()
        assert all(text in shown.text for text in ("Topic:T", "Pub", "10.0.0.0/8", "Deny"))


@pytest.fixture(scope="module")
def guarded_name_server() -> Iterator[Own]:
    """A name server and a broker that both have access control."""
    with flawless_cluster(_IN_A_WINDOW, _SETTINGS) as cluster:
        yield cluster


@pytest.mark.java
@pytest.mark.go
@pytest.mark.long
async def test_the_name_server_serves_known_users_by_rules_made_by_mqadmin(
    mqadmin_as: _MqAdminAs,
    java_program: JavaProgram,
    go_program: Path,
    guarded_name_server: Own,
    name: str,
    tmp_path: Path,
) -> None:
    namesrv, broker = guarded_name_server
    settings = ClientSettings(credentials=_ROOT)
    async with Admin(namesrv.address, settings=settings) as sdk:
        await sdk.create_topic(name, queues=4)
    admin = mqadmin_as(guarded_name_server, _ROOT)
    # The broker has registered with its own keys, and root may ask for everything.
    assert broker.address in (await admin("clusterList")).check().text
    assert name in (await admin("topicList")).check().text
    user = Credentials(f"u-{name}", "users-secret")
    subject = ["-s", f"User:{user.access_key}"]
    java = JavaClient(java_program, namesrv.address, tmp_path / "java", properties=_java_properties(user))
    go = GoClient(go_program, namesrv.address, tmp_path / "go", options=_key_options(user))
    rules = ((f"Topic:{name}", "Pub,Sub"), (f"Group:{name}*", "Sub"))
    for resource, actions in rules:
        on_broker = ["-b", broker.address, *subject]
        if resource.startswith("Topic"):
            named = ["-u", user.access_key, "-p", user.secret_key, "-t", "Normal"]
            (await admin("createUser", "-b", broker.address, *named)).check()
        (await admin("createAcl", *on_broker, "-r", resource, "-a", actions, "-d", "Allow")).check()
    # The broker would serve them by now, but they find no route to it.
    for client in (java, go):
        refused = await client.run("send", topic=name, count=1)
        assert refused.error is not None
    both = ["-f", broker.address, "-t", namesrv.address]
    (await admin("copyUser", *both, "-u", user.access_key)).check()
    (await admin("copyAcl", *both, *subject)).check()
    await check_sends_and_consumes(java, name)
    sent = await go.run("send", topic=name, count=3, tag="A")
    sent.check()
    shown = (await admin("getAcl", "-b", namesrv.address, *subject)).check()
    assert all(resource in shown.text for resource, _ in rules)
    rows = (await admin("listUser", "-b", namesrv.address)).check().rows
    assert {"root", "inner", user.access_key} <= {row[0] for row in rows}
    by_user = mqadmin_as(guarded_name_server, user)
    assert "broker-a" in (await by_user("topicRoute", "-t", name)).check().text
    denial = ["-r", f"Topic:{name}", "-a", "Pub,Sub,Get", "-d", "Deny"]
    (await admin("updateAcl", "-b", namesrv.address, *subject, *denial)).check()
    refused_route = await by_user("topicRoute", "-t", name)
    assert f"no permission to access Topic:{name}" in refused_route.text
    (await admin("deleteAcl", "-b", namesrv.address, *subject)).check()
    assert name not in (await admin("listAcl", "-b", namesrv.address)).text


@pytest.mark.java
@pytest.mark.long
async def test_mqadmin_with_wrong_keys_is_refused_by_the_name_server(
    mqadmin_as: _MqAdminAs, guarded_name_server: Own, name: str
) -> None:
    namesrv = guarded_name_server[0].address
    admin = mqadmin_as(guarded_name_server, _ROOT)
    named = ["-u", f"u-{name}", "-p", "users-secret", "-t", "Normal"]
    (await admin("createUser", "-b", namesrv, *named)).check()
    other = mqadmin_as(guarded_name_server, Credentials("root", "wrong"))
    for command in (["clusterList"], ["listUser", "-b", namesrv], ["getNamesrvConfig"]):
        refused = await other(*command)
        assert "check signature failed" in refused.text, command
    (await admin("updateUser", "-b", namesrv, "-u", f"u-{name}", "-s", "disable")).check()
    disabled = mqadmin_as(guarded_name_server, Credentials(f"u-{name}", "users-secret"))
    assert f"User:u-{name} is disabled" in (await disabled("clusterList")).text
    (await admin("deleteUser", "-b", namesrv, "-u", f"u-{name}")).check()
    assert f"u-{name}" not in (await admin("listUser", "-b", namesrv)).check().text


@pytest.mark.java
async def test_apaches_broker_registers_with_its_keys(apache_program: JavaProgram, tmp_path: Path) -> None:
    # The wait for Apache's broker asks without a signature which brokers are registered (106).
    settings = {**_SETTINGS, "authenticationWhitelist": "106"}
    # And lets it register again by a change of its configuration (25).
    brokers = {**_SETTINGS, "authenticationWhitelist": "25"}
    async with (
        OwnNamesrv(settings=settings) as namesrv,
        ApacheBroker(apache_program, namesrv.address, home=tmp_path / "broker", settings=brokers) as broker,
        Admin(namesrv.address, settings=ClientSettings(credentials=_ROOT)) as admin,
    ):
        addresses = (await admin.cluster_info()).brokers["broker-a"].addresses
        assert addresses == {0: broker.address}
        await admin.create_topic("T", queues=1)
        assert "T" in await admin.topics()
        await broker.stop()
        assert not namesrv.logged_errors()
        assert "authentication failed" not in namesrv.log_path.read_text()
        assert "access denied" not in namesrv.log_path.read_text()
