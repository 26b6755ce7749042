"""A name server that serves known users only, and brokers that register with it."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from pathlib import Path
from typing import Any, Final

import pytest

from rmq_broker.standalone import build_standalone
from rmq_client import (
    Admin,
    ClientSettings,
    Credentials,
    Message,
    NotAuthenticated,
    Producer,
    PushConsumer,
)
from rmq_remoting.bodies.access_control import UserInfo
from rmq_remoting.bodies.route import ClusterInfo
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.tasks import TaskSupervisor
from rmq_remoting.dispatch import Dispatcher
from tests.support.brokers import broker_configuration, running_broker
from tests.support.namesrv import running_namesrv
from tests.support.ports import LOOPBACK
from tests.support.push_consumers import Inbox
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.raw_client import RawClient, raw_client
from tests.support.signed_requests import AUTHENTICATION, INNER, ROOT, ask_as
from tests.support.waiting import until

_KNOWN_USERS: Final[dict[str, Any]] = {**AUTHENTICATION}
_RULES: Final[dict[str, Any]] = {**AUTHENTICATION, "authorizationEnabled": "true"}
_USER = Credentials("orders", "orders-secret")


async def _create_user(client: RawClient, keys: Credentials = _USER) -> None:
    named, body = {"username": keys.access_key}, {"password": keys.secret_key}
    created = await ask_as(client, RequestCode.AUTH_CREATE_USER, named, body)
    assert created.code == ResponseCode.SUCCESS, created


async def _allow(client: RawClient, resource: str, *actions: str, keys: Credentials = _USER) -> None:
    subject = f"User:{keys.access_key}"
    entry = {"resource": resource, "actions": list(actions), "decision": "Allow"}
    body = {"subject": subject, "policies": [{"policyType": "Custom", "entries": [entry]}]}
    created = await ask_as(client, RequestCode.AUTH_CREATE_ACL, {"subject": subject}, body)
    assert created.code == ResponseCode.SUCCESS, created


async def _brokers(client: RawClient) -> set[str]:
    info = ClusterInfo.decode((await ask_as(client, RequestCode.GET_BROKER_CLUSTER_INFO)).body)
    return set(info.broker_addr_table)


async def test_known_users_find_brokers_and_others_do_not(tmp_path: Path) -> None:
    """The broker checks nobody here: the name server alone refuses."""
    keys = AUTHENTICATION["innerClientAuthenticationCredentials"]
    async with (
        running_namesrv(tmp_path, **_KNOWN_USERS) as namesrv,
        raw_client(namesrv.port) as client,
        running_broker(
            tmp_path,
            namesrvAddr=namesrv.address,
            readyWaitMillis=10_000,
            innerClientAuthenticationCredentials=keys,
        ),
    ):
        await _create_user(client)
        settings = ClientSettings(credentials=_USER)
        async with Admin(namesrv.address, settings=settings) as admin:
            await admin.create_topic("T", queues=1)
        async with Producer(namesrv.address, group="p", settings=settings) as producer:
            await producer.send(Message("T", b"x"))
        inbox = Inbox()
        async with PushConsumer(
            namesrv.address, group="g", topics=["T"], listener=inbox, consume_from="first", settings=settings
        ):
            await until(lambda: inbox.bodies == [b"x"], 30)
        disabled = Credentials("idle", "idle-secret")
        await _create_user(client, disabled)
        await ask_as(client, RequestCode.AUTH_UPDATE_USER, {"username": "idle"}, {"userStatus": "disable"})
        for wrong in (None, Credentials("orders", "wrong"), Credentials("nobody", "orders-secret"), disabled):
            other = ClientSettings(credentials=wrong)
            async with Producer(namesrv.address, group="p", settings=other) as producer:
                with pytest.raises(NotAuthenticated):
                    await producer.send(Message("T", b"y"))


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_every_request_needs_a_signature(tmp_path: Path, serialization: Serialization) -> None:
    """Those without one are refused before anything else, also a registration."""
    async with (
        running_namesrv(tmp_path, **_KNOWN_USERS) as namesrv,
        raw_client(namesrv.port) as client,
    ):
        codes = [row.code for row in namesrv.dispatcher.registrations()]
        assert len(codes) > 30
        for code in [*codes, 9_999]:
            request = RemotingCommand.request(code, {"topic": "T"}, serialization=serialization)
            refused = await client.ask(request)
            assert refused.code == ResponseCode.NO_PERMISSION, code
            assert "set the client's credentials" in (refused.remark or "")
        assert namesrv.dispatcher.guard_refusals == len(codes) + 1
        accepted = await ask_as(client, RequestCode.GET_NAMESRV_CONFIG, serialization=serialization)
        assert accepted.code == ResponseCode.SUCCESS
        assert b"secret" not in accepted.body


async def test_codes_of_the_white_list_need_no_signature(tmp_path: Path) -> None:
    keys = {**_KNOWN_USERS, "authenticationWhitelist": "105"}
    async with running_namesrv(tmp_path, **keys) as namesrv, raw_client(namesrv.port) as client:
        for code, answer in (
            (RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.TOPIC_NOT_EXIST),
            (RequestCode.GET_BROKER_CLUSTER_INFO, ResponseCode.NO_PERMISSION),
        ):
            assert (await client.ask(RemotingCommand.request(code, {"topic": "T"}))).code == answer


async def test_users_and_rules_outlast_a_restart_beside_the_key_value_file(tmp_path: Path) -> None:
    async with running_namesrv(tmp_path, **_RULES) as namesrv, raw_client(namesrv.port) as client:
        await _create_user(client)
        await _allow(client, "Topic:T", "Pub")
    for name in ("users.json", "acls.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    async with running_namesrv(tmp_path, **_RULES) as namesrv, raw_client(namesrv.port) as client:
        for user in (ROOT, INNER, _USER):
            answer = await ask_as(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, keys=user)
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    folder = tmp_path / "auth"
    keys = {**_RULES, "authConfigPath": folder}
    async with running_namesrv(tmp_path, **keys) as namesrv, raw_client(namesrv.port) as client:
        refused = await ask_as(client, RequestCode.GET_BROKER_CLUSTER_INFO, keys=_USER)
        assert refused.remark == "User:orders is not found."
    assert (folder / "users.json").exists()


async def test_rules_count_for_every_request(tmp_path: Path) -> None:
    async with running_namesrv(tmp_path, **_RULES) as namesrv, raw_client(namesrv.port) as client:
        await _create_user(client)
        await _allow(client, "Topic:T", "Pub")
        await _allow(client, "Group:G", "Sub")
        await _allow(client, "Cluster:A", "Update", "Get")

        async def code_of(code: int, **fields: str) -> int:
            return (await ask_as(client, code, fields, keys=_USER)).code

        route = RequestCode.GET_ROUTEINFO_BY_TOPIC
        for topic in ("T", "%RETRY%G", "TBW102"):
            assert await code_of(route, topic=topic) == ResponseCode.TOPIC_NOT_EXIST
        for topic in ("U", "%RETRY%H"):
            assert await code_of(route, topic=topic) == ResponseCode.NO_PERMISSION
        members = RequestCode.GET_BROKER_MEMBER_GROUP
        assert await code_of(members, clusterName="A", brokerName="b") == ResponseCode.SUCCESS
        assert await code_of(members, clusterName="B", brokerName="b") == ResponseCode.NO_PERMISSION
        config = RequestCode.GET_NAMESRV_CONFIG
        assert await code_of(config) == ResponseCode.NO_PERMISSION
        assert await code_of(RequestCode.AUTH_LIST_USER) == ResponseCode.NO_PERMISSION
        await _allow(client, "Cluster:*", "Get")
        assert await code_of(config) == ResponseCode.SUCCESS
        refused = await ask_as(client, RequestCode.PUT_KV_CONFIG, keys=_USER)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "Cluster:* from 127.0.0.1 (Update)" in (refused.remark or "")


async def test_a_broker_registers_by_a_rule_for_its_cluster(tmp_path: Path) -> None:
    keys = json.dumps({"accessKey": _USER.access_key, "secretKey": _USER.secret_key})
    async with running_namesrv(tmp_path, **_RULES) as namesrv, raw_client(namesrv.port) as client:
        await _create_user(client)
        await _allow(client, "Cluster:DefaultCluster", "Update")
        async with running_broker(
            tmp_path,
            namesrvAddr=namesrv.address,
            readyWaitMillis=10_000,
            innerClientAuthenticationCredentials=keys,
            enableSingleTopicRegister="true",
        ) as broker:
            async with Admin(namesrv.address, settings=ClientSettings(credentials=ROOT)) as admin:
                await admin.create_topic("T", queues=1)
                assert "T" in await admin.topics()
            assert all(link.is_registered for link in broker.broker.registrar.links)
        assert await _brokers(client) == set()
        assert namesrv.dispatcher.guard_refusals == 0


@pytest.mark.parametrize(
    ("keys", "cause"),
    [
        ({"accessKey": "inner", "secretKey": "wrong"}, "check signature failed"),
        (None, "no access keys"),
        ({"accessKey": "orders", "secretKey": "orders-secret"}, "no permission to access Cluster:Default"),
    ],
)
async def test_a_broker_that_may_not_register_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keys: dict[str, str] | None, cause: str
) -> None:
    inner = {} if keys is None else {"innerClientAuthenticationCredentials": json.dumps(keys)}
    async with running_namesrv(tmp_path, **_RULES) as namesrv, raw_client(namesrv.port) as client:
        await _create_user(client)
        async with running_broker(tmp_path, namesrvAddr=namesrv.address, **inner) as broker:
            (link,) = broker.broker.registrar.links
            await until(lambda: link.failures > 1, 10)
            assert not link.is_registered
            assert await _brokers(client) == set()
    lines = [record for record in caplog.records if record.name == "rmq.broker.registration"]
    (line,) = [record for record in lines if record.levelno == logging.WARNING]
    assert line.getMessage().startswith("not registered with name server 127.0.0.1:")
    assert cause in line.getMessage()
    assert "set innerClientAuthenticationCredentials" in line.getMessage()


async def test_notifications_to_brokers_are_signed(tmp_path: Path) -> None:
    """A broker with access control would refuse the name server's notification otherwise."""
    async with (
        running_namesrv(tmp_path, notifyMinBrokerIdChanged="true", **_KNOWN_USERS) as namesrv,
        running_broker(tmp_path, **AUTHENTICATION) as broker,
        raw_client(namesrv.port) as client,
    ):
        for number in (1, 0):
            fields = {"clusterName": "A", "brokerName": "b", "brokerId": str(number), "haServerAddr": ""}
            address = broker.address if number else f"{LOOPBACK}:1"
            body = {"topicConfigSerializeWrapper": {"topicConfigTable": {}}, "filterServerList": []}
            registered = await ask_as(
                client, RequestCode.REGISTER_BROKER, {**fields, "brokerAddr": address}, body
            )
            assert registered.code == ResponseCode.SUCCESS, registered
        dispatcher = broker.broker.listeners.main.dispatcher
        await until(lambda: _is_answered(dispatcher, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE), 10)
        assert dispatcher.guard_refusals == 0


def _is_answered(dispatcher: Dispatcher, code: int) -> bool:
    return any(row.answered for row in dispatcher.registrations() if row.code == code)


async def test_a_standalone_broker_shares_its_users_and_rules(tmp_path: Path) -> None:
    supervisor = TaskSupervisor(lambda name, error: None)
    configuration = broker_configuration(tmp_path, readyWaitMillis=10_000, **_RULES)
    standalone = await build_standalone(configuration, supervisor, namesrv_port=0)
    address = f"{LOOPBACK}:{standalone.namesrv.port}"
    try:
        await standalone.start()
        assert all(link.is_registered for link in standalone.broker.registrar.links)
        async with Admin(address, settings=ClientSettings(credentials=ROOT)) as admin:
            await admin.create_topic("T", queues=1)
        # A user that is created at either port is known at both.
        async with raw_client(standalone.broker.port) as broker:
            await _create_user(broker)
            await _allow(broker, "Topic:T", "Pub")
        async with Producer(address, group="p", settings=ClientSettings(credentials=_USER)) as producer:
            await producer.send(Message("T", b"x"))
        async with raw_client(standalone.namesrv.port) as namesrv:
            shown = await ask_as(namesrv, RequestCode.AUTH_GET_USER, {"username": _USER.access_key})
            assert UserInfo.decode(shown.body).password == _USER.secret_key
            unsigned = await namesrv.ask(RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO))
            assert unsigned.code == ResponseCode.NO_PERMISSION
            # The last change before the stop is on disk after it.
            await _create_user(namesrv, Credentials("late", "late-secret"))
    finally:
        await standalone.stop()
        await supervisor.stop()
    file = tmp_path / "store" / "config" / "users.json"
    users = json.loads(await asyncio.to_thread(file.read_text))["users"]
    assert {user["username"] for user in users} == {"root", "inner", "orders", "late"}


async def test_a_name_server_that_nobody_could_use_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="Set initAuthenticationUser"):
        async with running_namesrv(tmp_path, authenticationEnabled="true"):
            pass


async def test_damaged_users_refuse_the_start(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text('{"users":')
    with pytest.raises(StartError, match=r"users\.json is damaged"):
        async with running_namesrv(tmp_path, **_KNOWN_USERS):
            pass


async def test_a_name_server_says_at_start_who_may_do_what(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for keys in ({}, {"adminAllowlist": "10.0.0.0/8"}, _RULES):
            async with running_namesrv(tmp_path, **keys):
                pass
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("access ")]
    assert len(lines) == 3
    assert "this name server's ports may do everything" in lines[0]
    assert "may register brokers and read routes administration_from=10.0.0.0/8" in lines[1]
    assert "users=2 rights=by rules" in lines[2]
