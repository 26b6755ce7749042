"""A broker whose users may do what their rules allow."""

from __future__ import annotations

import json
import stat
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_client import (
    Admin,
    ClientSettings,
    Credentials,
    Message,
    NotAuthorized,
    Producer,
    PushConsumer,
    SimpleConsumer,
)
from rmq_remoting.bodies.access_control import AclInfo
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.daemon.configuration import SettingsError
from rmq_remoting.java_hash import string_hash_code
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_ids import parse_offset_message_id
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.broker_requests import create_topic, send, sent
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.namesrv import running_namesrv
from tests.support.push_consumers import Inbox
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.raw_client import RawClient, raw_client
from tests.support.signed_requests import AUTHENTICATION, ROOT, ask_as, signed
from tests.support.waiting import until

_ANNA = Credentials("anna", "annas-secret")
_AUTHORIZATION = {**AUTHENTICATION, "authorizationEnabled": "true"}


@asynccontextmanager
async def _broker(folder: Path, **keys: object) -> AsyncIterator[tuple[RunningBroker, RawClient]]:
    """A broker with a normal user, and a client of its main port."""
    async with running_broker(folder, **{**_AUTHORIZATION, **keys}) as broker, broker.client() as client:
        await _create_anna(client)
        yield broker, client


async def _create_anna(client: RawClient) -> None:
    body = {"password": _ANNA.secret_key}
    created = await ask_as(client, Code.AUTH_CREATE_USER, {"username": "anna"}, body)
    assert created.code == ResponseCode.SUCCESS


async def _grant(client: RawClient, *entries: dict[str, object]) -> None:
    """Add rules for the normal user."""
    filled = [{"decision": "Allow", **entry} for entry in entries]
    acl = {"subject": "User:anna", "policies": [{"policyType": "Custom", "entries": filled}]}
    granted = await ask_as(client, Code.AUTH_CREATE_ACL, {"subject": "User:anna"}, acl)
    assert granted.code == ResponseCode.SUCCESS, granted.remark


async def test_a_user_with_rules_sends_and_consumes(tmp_path: Path) -> None:
    async with (
        running_namesrv(tmp_path) as namesrv,
        _broker(tmp_path, namesrvAddr=namesrv.address, readyWaitMillis=10_000) as (_, client),
    ):
        async with Admin(namesrv.address, settings=ClientSettings(credentials=ROOT)) as admin:
            for name in ("T", "U"):
                await admin.create_topic(name, queues=1)
        await _grant(
            client,
            {"resource": "Topic:T", "actions": ["Pub", "Sub"]},
            {"resource": "Group:g*", "actions": ["Sub"]},
        )
        settings = ClientSettings(credentials=_ANNA)
        async with Producer(namesrv.address, group="p", settings=settings) as producer:
            await producer.send(Message("T", b"1"))
            with pytest.raises(NotAuthorized, match=r"anna has no permission to access Topic:U"):
                await producer.send(Message("U", b"2"))
            async with producer.transaction(Message("T", b"3")):
                pass
        inbox = Inbox()
        async with PushConsumer(
            namesrv.address, group="g1", topics=["T"], listener=inbox, consume_from="first", settings=settings
        ):
            await until(lambda: inbox.bodies == [b"1", b"3"], 30)
        async with SimpleConsumer(
            namesrv.address, group="g2", topics=["T"], consume_from="first", settings=settings
        ) as consumer:
            (message,) = await consumer.receive(1, timeout_seconds=10)
            await consumer.ack(message)


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_every_request_needs_a_rule(tmp_path: Path, serialization: Serialization) -> None:
    """A user without rules may make only the requests that touch nothing of others."""
    free = {
        Code.CHECK_CLIENT_CONFIG,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
        Code.NOTIFY_BROKER_ROLE_CHANGED,
    }
    fields = {key: "T" for key in ("topic", "b", "group", "consumerGroup", "groupName", "srcGroup")}
    body = {
        "clientID": "c",
        "clientId": "c",
        "consumerGroup": "G",
        "groupName": "G",
        "topic": "T",
        "mqSet": [],
        "acks": [{"c": "G", "t": "T"}],
        "topicConfigList": [{"topicName": "T"}],
        "groupConfigList": [{"groupName": "G"}],
        "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": []}],
    }
    async with _broker(tmp_path) as (broker, _):
        for dispatcher, port in (
            (broker.broker.listeners.main.dispatcher, broker.port),
            (broker.broker.listeners.fast.dispatcher, broker.fast_port),
        ):
            codes = [row.code for row in dispatcher.registrations() if row.code not in free]
            async with raw_client(port) as client:
                for code in [*codes, 9_999]:
                    refused = await ask_as(
                        client, code, dict(fields), body, keys=_ANNA, serialization=serialization
                    )
                    assert refused.code == ResponseCode.NO_PERMISSION, code
                    assert "User:anna has no permission to access" in (refused.remark or "")


async def test_rules_are_administrated(tmp_path: Path) -> None:
    async with _broker(tmp_path) as (_, client):
        subject = {"subject": "User:anna"}
        assert (await ask_as(client, Code.AUTH_GET_ACL, subject)).body == b""
        await _grant(client, {"resource": "Topic:T", "actions": ["Get"]})
        for body in (None, {}, {"policies": [{"entries": [{"resource": "T"}]}]}):
            refused = await ask_as(client, Code.AUTH_UPDATE_ACL, subject, body)
            assert refused.code in (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR)
        entry = {"resource": "Group:G", "actions": ["Get"], "decision": "Deny"}
        update = {"policies": [{"entries": [entry]}]}
        assert (await ask_as(client, Code.AUTH_UPDATE_ACL, subject, update)).code == ResponseCode.SUCCESS
        shown = AclInfo.decode((await ask_as(client, Code.AUTH_GET_ACL, subject)).body)
        assert shown.subject == "User:anna"
        assert [entry.resource for entry in shown.policies[0].entries] == ["Topic:T", "Group:G"]
        listed = json.loads((await ask_as(client, Code.AUTH_LIST_ACL, {"resourceFilter": "Group"})).body)
        assert [entry["resource"] for entry in listed[0]["policies"][0]["entries"]] == ["Group:G"]
        assert (await ask_as(client, Code.AUTH_LIST_ACL, {"subjectFilter": "bert"})).body == b""
        one = {**subject, "resource": "Topic:T"}
        assert (await ask_as(client, Code.AUTH_DELETE_ACL, one)).code == ResponseCode.SUCCESS
        assert (await ask_as(client, Code.AUTH_DELETE_ACL, subject)).code == ResponseCode.SUCCESS
        again = await ask_as(client, Code.AUTH_DELETE_ACL, subject)
        assert (again.code, again.remark) == (ResponseCode.NO_PERMISSION, "the user anna has no rules")
        unknown = await ask_as(client, Code.AUTH_GET_ACL, {"subject": "User:bert"})
        assert unknown.code == ResponseCode.NO_PERMISSION


async def _may_get(client: RawClient, topic: str = "T") -> bool:
    """Whether the normal user may ask for the configuration of a topic."""
    answer = await ask_as(client, Code.GET_TOPIC_CONFIG, {"topic": topic}, keys=_ANNA)
    return answer.code != ResponseCode.NO_PERMISSION


async def test_changes_of_rules_take_effect_at_once(tmp_path: Path) -> None:
    async with _broker(tmp_path) as (_, client):
        assert not await _may_get(client)
        await _grant(client, {"resource": "*", "actions": ["All"]})
        assert await _may_get(client)
        await _grant(client, {"resource": "Topic:T*", "actions": ["Get"], "decision": "Deny"})
        assert (await _may_get(client), await _may_get(client, "U")) == (False, True)
        await _grant(client, {"resource": "*", "actions": ["All"], "sourceIps": ["10.0.0.0/8"]})
        assert not await _may_get(client, "U")
        await _grant(client, {"resource": "*", "actions": ["All"], "sourceIps": ["127.0.0.0/8"]})
        assert await _may_get(client, "U")
        # A user of the same name has no rules of the deleted one.
        await ask_as(client, Code.AUTH_DELETE_USER, {"username": "anna"})
        await _create_anna(client)
        assert not await _may_get(client, "U")


async def test_rules_outlast_a_restart(tmp_path: Path) -> None:
    async with _broker(tmp_path) as (_, client):
        await _grant(client, {"resource": "Topic:T", "actions": ["Get"]})
    file = tmp_path / "store" / "config" / "acls.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    async with running_broker(tmp_path, **_AUTHORIZATION) as broker, broker.client() as client:
        assert await _may_get(client)


async def test_white_lists(tmp_path: Path) -> None:
    """A code without signature is not a code without rights; a name that nobody proved has none."""
    code = Code.GET_BROKER_CONFIG
    async with _broker(tmp_path, authenticationWhitelist=int(code)) as (_, client):
        claimed = RemotingCommand.request(code, {"AccessKey": "root"})
        assert (await client.ask(claimed)).code == ResponseCode.NO_PERMISSION
        assert (await ask_as(client, code)).code == ResponseCode.SUCCESS
    lists = {"authenticationWhitelist": int(code), "authorizationWhitelist": f"{int(code)}, 999"}
    async with running_broker(tmp_path, **{**_AUTHORIZATION, **lists}) as broker, broker.client() as client:
        assert (await client.ask(RemotingCommand.request(code))).code == ResponseCode.SUCCESS


def test_authorization_needs_authentication(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="set authenticationEnabled=true, too"):
        broker_configuration(tmp_path, authorizationEnabled="true")


async def test_other_spellings_of_a_field_do_not_pass_the_rules_by(tmp_path: Path) -> None:
    """The rules are about the group in `consumerGroup`; so must be the commit."""
    created = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1"}
    created |= {"perm": "6", "topicFilterType": "SINGLE_TAG"}
    place = {"topic": "T", "queueId": "0", "commitOffset": "0", "setZeroIfNotFound": "false"}
    victim = {**place, "consumerGroup": "victim"}
    async with _broker(tmp_path) as (_, client):
        made = await ask_as(client, Code.UPDATE_AND_CREATE_TOPIC, created)
        assert made.code == ResponseCode.SUCCESS
        for name in ("victim", "mine"):
            body = {"groupName": name}
            made = await ask_as(client, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
            assert made.code == ResponseCode.SUCCESS
        await _grant(
            client,
            {"resource": "Topic:T", "actions": ["Sub"]},
            {"resource": "Group:mine", "actions": ["Sub"]},
        )
        for spelled in ({"consumer_group": "victim"}, {"consumerGroup": "mine", "consumer_group": "victim"}):
            await ask_as(client, Code.UPDATE_CONSUMER_OFFSET, {**place, **spelled}, keys=_ANNA)
        kept = await ask_as(client, Code.QUERY_CONSUMER_OFFSET, victim)
        assert kept.code == ResponseCode.QUERY_NOT_FOUND
        # The same commit of a user who may make it has an effect.
        assert (await ask_as(client, Code.UPDATE_CONSUMER_OFFSET, victim)).code == ResponseCode.SUCCESS
        moved = await ask_as(client, Code.QUERY_CONSUMER_OFFSET, victim)
        assert moved.ext_fields["offset"] == "0"


async def test_an_overlong_body_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with _broker(tmp_path) as (_, client):
        request = RemotingCommand.request(Code.HEART_BEAT, {}, bytes(2 * 1024 * 1024))
        assert (await client.ask(request)).code == ResponseCode.INVALID_PARAMETER


# --- messages named by their place in the log ---


def _colliding_key(topic: str, other_topic: str, other_key: str) -> str:
    """A key whose hash in the index, with its topic, is that of another topic's message."""
    digits = 7
    wanted = string_hash_code(f"{other_topic}#{other_key}") & 0xFFFFFFFF
    begin = string_hash_code(f"{topic}#{chr(33) * digits}") & 0xFFFFFFFF
    rest, key = (wanted - begin) % (1 << 32), ""
    for _ in range(digits):
        rest, digit = divmod(rest, 31)
        key = chr(33 + digit) + key
    assert string_hash_code(f"{topic}#{key}") & 0xFFFFFFFF == wanted
    return key


@asynccontextmanager
async def _two_topics(folder: Path) -> AsyncIterator[tuple[RunningBroker, RawClient]]:
    """A broker whose normal user has all rights for topic T and groups g…, none for topic Secret."""
    async with _broker(folder) as (broker, client):
        for topic in ("T", "Secret"):
            assert (await client.ask(signed(create_topic(topic, 1), ROOT))).code == ResponseCode.SUCCESS
        await _grant(
            client,
            {"resource": "Topic:T", "actions": ["Pub", "Sub", "Get", "Update"]},
            {"resource": "Group:g*", "actions": ["Sub"]},
        )
        yield broker, client


async def _sent(client: RawClient, topic: str, **properties: str) -> tuple[int, int]:
    """Send a message as the super user; return its offsets in the log and in its queue."""
    answer = sent(await client.ask(signed(send(topic, b"body", properties=properties), ROOT)))
    return parse_offset_message_id(answer.msg_id).physical_offset, answer.queue_offset


async def test_messages_of_other_topics_cannot_be_viewed(tmp_path: Path) -> None:
    async with _two_topics(tmp_path) as (_, client):
        places = {topic: (await _sent(client, topic))[0] for topic in ("T", "Secret")}
        for topic, code in (("T", ResponseCode.SUCCESS), ("Secret", ResponseCode.NO_PERMISSION)):
            fields = {"topic": "T", "offset": str(places[topic])}
            answer = await ask_as(client, Code.VIEW_MESSAGE_BY_ID, fields, keys=_ANNA)
            assert answer.code == code, (topic, answer.remark)
            assert bool(answer.body) == (topic == "T")
        answer = await ask_as(client, Code.VIEW_MESSAGE_BY_ID, fields, keys=ROOT)
        assert answer.code == ResponseCode.SUCCESS


async def test_messages_of_other_topics_cannot_be_queried_by_equal_hashes(tmp_path: Path) -> None:
    key = _colliding_key("T", "Secret", "k")
    async with _two_topics(tmp_path) as (broker, client):
        await _sent(client, "Secret", KEYS="k")
        await until(lambda: broker.store.index.end_offset == broker.store.max_phy_offset())
        fields = {"topic": "T", "maxNum": "9", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}
        answer = await ask_as(client, Code.QUERY_MESSAGE, {**fields, "key": key}, keys=_ANNA)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        await _sent(client, "T", KEYS=key)
        await until(lambda: broker.store.index.end_offset == broker.store.max_phy_offset())
        answer = await ask_as(client, Code.QUERY_MESSAGE, {**fields, "key": key}, keys=_ANNA)
        assert [message.topic for message in decode_messages(answer.body)] == ["T"]


async def test_messages_of_other_topics_cannot_be_sent_back(tmp_path: Path) -> None:
    """They would be redelivered to a group that the client may consume with."""
    async with _two_topics(tmp_path) as (broker, client):
        body = {"groupName": "g"}
        made = await ask_as(client, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        assert made.code == ResponseCode.SUCCESS
        for topic, code in (("Secret", ResponseCode.NO_PERMISSION), ("T", ResponseCode.SUCCESS)):
            place, _ = await _sent(client, topic)
            fields = {"group": "g", "offset": str(place), "delayLevel": "1", "originTopic": "T"}
            answer = await ask_as(client, Code.CONSUMER_SEND_MSG_BACK, fields, keys=_ANNA)
            assert answer.code == code, (topic, answer.remark)
        assert broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1


@pytest.mark.parametrize("outcome", [MessageSysFlag.TRANSACTION_COMMIT, MessageSysFlag.TRANSACTION_ROLLBACK])
async def test_transactions_of_other_topics_cannot_be_ended(tmp_path: Path, outcome: int) -> None:
    async with _two_topics(tmp_path) as (broker, client):
        for topic, code in (("Secret", ResponseCode.NO_PERMISSION), ("T", ResponseCode.SUCCESS)):
            place, queue_offset = await _sent(client, topic, TRAN_MSG="true", PGROUP="PG", UNIQ_KEY=topic)
            fields = {
                "topic": "T",
                "producerGroup": "PG",
                "tranStateTableOffset": str(queue_offset),
                "commitLogOffset": str(place),
                "commitOrRollback": str(int(outcome)),
                "msgId": topic,
            }
            answer = await ask_as(client, Code.END_TRANSACTION, fields, keys=_ANNA)
            assert answer.code == code, (topic, answer.remark)
        ended = broker.services.transactions.ending
        assert ended.committed + ended.rolled_back == Counter({"T": 1})
