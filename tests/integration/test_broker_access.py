"""A broker that serves known users only."""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_client import Admin, ClientSettings, Credentials, Message, NotAuthenticated, Producer, PushConsumer
from rmq_remoting.bodies.access_control import UserInfo
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.daemon.configuration import SettingsError
from rmq_remoting.daemon.lifecycle import StartError
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.namesrv import running_namesrv
from tests.support.push_consumers import Inbox
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.raw_client import raw_client
from tests.support.signed_requests import AUTHENTICATION, INNER, ROOT, ask_as
from tests.support.waiting import until


@asynccontextmanager
async def _cluster(folder: Path, **keys: object) -> AsyncIterator[tuple[str, RunningBroker]]:
    async with (
        running_namesrv(folder) as namesrv,
        running_broker(
            folder, namesrvAddr=namesrv.address, readyWaitMillis=10_000, **{**AUTHENTICATION, **keys}
        ) as broker,
    ):
        yield namesrv.address, broker


async def test_known_users_send_and_consume_and_others_do_not(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as (address, _):
        settings = ClientSettings(credentials=ROOT)
        async with Admin(address, settings=settings) as admin:
            await admin.create_topic("T", queues=1)
        async with Producer(address, group="p", settings=settings) as producer:
            await producer.send(Message("T", b"x"))
        inbox = Inbox()
        async with PushConsumer(
            address, group="g", topics=["T"], listener=inbox, consume_from="first", settings=settings
        ):
            await until(lambda: inbox.bodies == [b"x"], 30)
        for wrong in (None, Credentials("root", "wrong"), Credentials("nobody", "roots-secret")):
            async with Producer(address, group="p", settings=ClientSettings(credentials=wrong)) as producer:
                with pytest.raises(NotAuthenticated):
                    await producer.send(Message("T", b"y"))


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_every_request_needs_a_signature(tmp_path: Path, serialization: Serialization) -> None:
    """Those without one, on both ports, are refused before anything else; those that are signed are not."""
    async with running_broker(tmp_path, **AUTHENTICATION) as broker:
        for dispatcher, port in (
            (broker.broker.listeners.main.dispatcher, broker.port),
            (broker.broker.listeners.fast.dispatcher, broker.fast_port),
        ):
            codes = [row.code for row in dispatcher.registrations()]
            assert len(codes) > 60
            async with raw_client(port) as client:
                for code in codes:
                    request = RemotingCommand.request(code, {"topic": "T"}, serialization=serialization)
                    refused = await client.ask(request)
                    assert refused.code == ResponseCode.NO_PERMISSION, RequestCode(code).name
                    assert "set the client's credentials" in (refused.remark or "")
                unknown = await client.ask(RemotingCommand.request(9_999))
                assert unknown.code == ResponseCode.NO_PERMISSION
            assert dispatcher.guard_refusals == len(codes) + 1
        accepted = await _ask_version(broker)
        assert accepted.code == ResponseCode.SUCCESS


async def _ask_version(broker: RunningBroker) -> RemotingCommand:
    async with broker.client() as client:
        return await ask_as(client, RequestCode.GET_BROKER_CONFIG)


async def test_one_way_requests_without_a_signature_do_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **AUTHENTICATION) as broker, broker.client() as client:
        request = RemotingCommand.request(
            RequestCode.SEND_MESSAGE_V2, {"b": "T", "a": "p"}, b"x", oneway=True
        )
        client.send(request, request)
        assert (await ask_as(client, RequestCode.GET_BROKER_CONFIG)).code == ResponseCode.SUCCESS
        assert broker.broker.listeners.main.dispatcher.guard_refusals == 2


async def test_users_are_administrated(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **AUTHENTICATION) as broker, broker.client() as client:
        anna = Credentials("anna", "annas-secret")
        new = {"password": anna.secret_key, "userType": "Normal"}
        named = {"username": "anna"}
        created = await ask_as(client, RequestCode.AUTH_CREATE_USER, named, new)
        assert created.code == ResponseCode.SUCCESS
        again = await ask_as(client, RequestCode.AUTH_CREATE_USER, named, new)
        assert (again.code, again.remark) == (
            ResponseCode.NO_PERMISSION,
            "the user anna exists already: update it",
        )
        shown = UserInfo.decode((await ask_as(client, RequestCode.AUTH_GET_USER, named)).body)
        assert (shown.password, shown.user_type, shown.user_status) == ("annas-secret", "Normal", "enable")
        # Others see no passwords, and cannot touch super users.
        shown = UserInfo.decode((await ask_as(client, RequestCode.AUTH_GET_USER, named, keys=anna)).body)
        assert (shown.username, shown.password) == ("anna", None)
        listed = await ask_as(client, RequestCode.AUTH_LIST_USER, {"filter": "n"}, keys=anna)
        assert [user["username"] for user in json.loads(listed.body)] == ["anna", "inner"]
        for code, fields, body in (
            (RequestCode.AUTH_CREATE_USER, {"username": "eve"}, {"password": "e", "userType": "Super"}),
            (RequestCode.AUTH_UPDATE_USER, named, {"userType": "Super"}),
            (RequestCode.AUTH_UPDATE_USER, {"username": "root"}, {"password": "e"}),
            (RequestCode.AUTH_DELETE_USER, {"username": "inner"}, None),
        ):
            refused = await ask_as(client, code, fields, body, keys=anna)
            assert refused.code == ResponseCode.NO_PERMISSION
            assert "only a super user" in (refused.remark or "")
        disabled = await ask_as(client, RequestCode.AUTH_UPDATE_USER, named, {"userStatus": "disable"})
        assert disabled.code == ResponseCode.SUCCESS
        refused = await ask_as(client, RequestCode.GET_BROKER_CONFIG, keys=anna)
        assert refused.remark == "User:anna is disabled."
        for _ in range(2):
            deleted = await ask_as(client, RequestCode.AUTH_DELETE_USER, named)
            assert deleted.code == ResponseCode.SUCCESS
        assert (await ask_as(client, RequestCode.AUTH_GET_USER, named)).body == b""
        blank = await ask_as(client, RequestCode.AUTH_GET_USER, {"username": " "})
        assert blank.code == ResponseCode.INVALID_PARAMETER


async def test_users_outlast_a_restart_in_a_file_of_their_own(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **AUTHENTICATION) as broker, broker.client() as client:
        body = {"password": "annas-secret"}
        await ask_as(client, RequestCode.AUTH_CREATE_USER, {"username": "anna"}, body)
    file = tmp_path / "store" / "config" / "users.json"
    for path in (file, file.with_name("users.json.bak")):
        assert not path.exists() or stat.S_IMODE(path.stat().st_mode) == 0o600
    # The password of the settings counts only for a user that does not exist yet.
    other = json.dumps({"username": "root", "password": "changed"})
    keys = {**AUTHENTICATION, "initAuthenticationUser": other}
    async with running_broker(tmp_path, **keys) as broker, broker.client() as client:
        for user in (ROOT, Credentials("anna", "annas-secret"), INNER):
            answer = await ask_as(client, RequestCode.GET_BROKER_CONFIG, keys=user)
            assert answer.code == ResponseCode.SUCCESS


async def test_secrets_are_neither_shown_nor_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with running_broker(tmp_path, **AUTHENTICATION) as broker, broker.client() as client:
            answer = await ask_as(client, RequestCode.GET_BROKER_CONFIG)
            await ask_as(client, RequestCode.AUTH_CREATE_USER, {"username": "anna"}, {"password": "s3cret"})
            await ask_as(client, RequestCode.GET_BROKER_CONFIG, keys=Credentials("anna", "wrong"))
    assert b"initAuthenticationUser=******" in answer.body
    for secret in ("roots-secret", "inners-secret", "s3cret"):
        assert secret.encode() not in answer.body
        assert secret not in caplog.text


async def test_a_broker_that_nobody_could_use_does_not_start(tmp_path: Path) -> None:
    broker = RunningBroker(broker_configuration(tmp_path, authenticationEnabled="true"))
    with pytest.raises(StartError, match="Set initAuthenticationUser"):
        await broker.start()
    await broker.stop()


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("initAuthenticationUser", "root:secret", "must be {"),
        ("initAuthenticationUser", '{"username":"root"}', "must be {"),
        ("innerClientAuthenticationCredentials", '{"accessKey":"a"}', "must be {"),
        ("authenticationWhitelist", "105,all", "'all' is no request code"),
        ("authenticationProvider", "com.example.Mine", "must be empty or org.apache.rocketmq.auth"),
        ("authenticationMetadataProvider", "com.example.Mine", "must be empty or org.apache.rocketmq.auth"),
        ("authenticationStrategy", "com.example.Mine", "must be empty or org.apache.rocketmq.auth"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    tmp_path: Path, key: str, value: str, problem: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        broker_configuration(tmp_path, **{**AUTHENTICATION, key: value})
    assert problem in str(refused.value)
    assert "roots-secret" not in str(refused.value)


async def test_access_without_authentication_is_announced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path):
        pass
    lines = [record.getMessage() for record in caplog.records if "access is open" in record.getMessage()]
    assert len(lines) == 1


async def test_administration_from_listed_addresses_only(tmp_path: Path) -> None:
    topic = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1"}
    fields = {**topic, "perm": "6", "topicFilterType": "SINGLE_TAG"}
    create = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    pull = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    async with running_broker(tmp_path, adminAllowlist="10.0.0.0/8") as broker, broker.client() as client:
        refused = await client.ask(create)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "from '127.0.0.1'" in (refused.remark or "")
        assert (await client.ask(pull)).code != ResponseCode.NO_PERMISSION
    async with running_broker(tmp_path, adminAllowlist="127.0.0.1") as broker, broker.client() as client:
        assert (await client.ask(create)).code == ResponseCode.SUCCESS


async def test_administration_of_a_name_server_from_listed_addresses_only(tmp_path: Path) -> None:
    change = RemotingCommand.request(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"enableTopicList=true")
    route = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    for allowed, code in (("10.0.0.0/8", ResponseCode.NO_PERMISSION), ("127.0.0.1", ResponseCode.SUCCESS)):
        async with (
            running_namesrv(tmp_path, adminAllowlist=allowed) as namesrv,
            raw_client(namesrv.port) as client,
        ):
            assert (await client.ask(change)).code == code
            assert (await client.ask(route)).code == ResponseCode.TOPIC_NOT_EXIST
