"""The needs of requests: topics, groups and the cluster that a user must have rights for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from rmq_broker.build import build_dispatcher
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.access.broker_requests import RequestNeeds
from rmq_remoting.daemon.access.needs import Need
from rmq_remoting.daemon.access.policies import Action, cluster, group, topic
from tests.support.brokers import broker_configuration
from tests.support.rows import each_row

_NEEDS = RequestNeeds("C")
_PUB, _SUB, _GET = (Action.PUB,), (Action.SUB,), (Action.GET,)
_UPDATE, _CREATE = (Action.UPDATE,), (Action.CREATE,)

# Codes that change the broker as a whole: they need Update on the cluster.
_CHANGES_OF_THE_BROKER = {
    Code.UPDATE_BROKER_CONFIG,
    Code.NOTIFY_MIN_BROKER_ID_CHANGE,
    Code.EXCHANGE_BROKER_HA_INFO,
    Code.RESET_MASTER_FLUSH_OFFSET,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE,
    Code.CLEAN_UNUSED_TOPIC,
    Code.DELETE_EXPIRED_COMMITLOG,
    Code.AUTH_CREATE_USER,
    Code.AUTH_UPDATE_USER,
    Code.AUTH_DELETE_USER,
    Code.AUTH_CREATE_ACL,
    Code.AUTH_UPDATE_ACL,
    Code.AUTH_DELETE_ACL,
    Code.POP_ROLLBACK,
    Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
    Code.SET_COMMITLOG_READ_MODE,
    Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
}


def _needs(code: int, fields: dict[str, str] | None = None, body: object = None) -> set[Need]:
    content = b"" if body is None else json.dumps(body).encode()
    return set(_NEEDS.of(RemotingCommand.request(code, fields or {}, content)))


@each_row(
    ("code", "fields", "needs"),
    [
        (Code.SEND_MESSAGE, {"topic": "T"}, {Need(topic("T"), _PUB)}),
        (Code.SEND_MESSAGE_V2, {"a": "G", "b": "T"}, {Need(topic("T"), _PUB)}),
        (Code.SEND_BATCH_MESSAGE, {"a": "G", "b": "%DLQ%G"}, {Need(topic("%DLQ%G"), _PUB)}),
        # The group of the retry topic counts, not the one that the sender names.
        (Code.SEND_MESSAGE_V2, {"a": "G", "b": "%RETRY%H"}, {Need(group("H"), _SUB)}),
        (
            Code.PULL_MESSAGE,
            {"consumerGroup": "G", "topic": "T"},
            {Need(group("G"), _SUB), Need(topic("T"), _SUB)},
        ),
        (Code.PULL_MESSAGE, {"consumerGroup": "G", "topic": "%RETRY%G"}, {Need(group("G"), _SUB)}),
        (
            Code.PULL_MESSAGE,
            {"consumerGroup": "G", "topic": "%RETRY%H"},
            {Need(group("G"), _SUB), Need(group("H"), _SUB)},
        ),
        # The code of a pop in a binary header.
        (
            Code.POP_MESSAGE & 0xFFFF,
            {"consumerGroup": "G", "topic": "T"},
            {Need(group("G"), _SUB), Need(topic("T"), _SUB)},
        ),
        (Code.ACK_MESSAGE, {"consumerGroup": "G", "topic": "%RETRY%G+T"}, {Need(group("G"), _SUB)}),
        (Code.ACK_MESSAGE, {"consumerGroup": "G", "topic": "%RETRY%G_T"}, {Need(group("G"), _SUB)}),
        (
            Code.ACK_MESSAGE,
            {"consumerGroup": "G", "topic": "%RETRY%GG_T"},
            {Need(group("G"), _SUB), Need(group("GG_T"), _SUB)},
        ),
        (Code.END_TRANSACTION, {"topic": "T"}, {Need(topic("T"), _PUB)}),
        (Code.END_TRANSACTION, {}, {Need(cluster("C"), _PUB)}),
        (Code.VIEW_MESSAGE_BY_ID, {"offset": "1"}, {Need(cluster("C"), (Action.SUB, Action.GET))}),
        (
            Code.GET_CONSUME_STATS,
            {"consumerGroup": "G", "topicList": "T;U"},
            {Need(group("G"), _GET), Need(topic("T"), _GET), Need(topic("U"), _GET)},
        ),
        (Code.UNREGISTER_CLIENT, {"producerGroup": "P"}, set()),
        (Code.UNREGISTER_CLIENT, {"consumerGroup": "G"}, {Need(group("G"), _SUB)}),
        (Code.CHECK_CLIENT_CONFIG, {}, set()),
        (Code.UPDATE_BROKER_CONFIG, {}, {Need(cluster("C"), _UPDATE)}),
        (Code.GET_BROKER_CONFIG, {}, {Need(cluster("C"), _GET)}),
        (9_999, {}, {Need(cluster("C"), _UPDATE)}),
    ],
)
def test_needs_by_header(code: int, fields: dict[str, str], needs: set[Need]) -> None:
    assert _needs(code, fields) == needs


def test_needs_by_body() -> None:
    heartbeat = {
        "clientID": "c",
        "producerDataSet": [{"groupName": "P"}],
        "consumerDataSet": [
            {
                "groupName": "G",
                "subscriptionDataSet": [
                    {"topic": "T", "subString": "*"},
                    {"topic": "%RETRY%G", "subString": "*"},
                ],
            }
        ],
    }
    assert _needs(Code.HEART_BEAT, body=heartbeat) == {Need(group("G"), _SUB), Need(topic("T"), _SUB)}
    lock = {
        "clientId": "c",
        "consumerGroup": "G",
        "mqSet": [{"topic": "T", "brokerName": "b", "queueId": number} for number in range(3)],
    }
    expected = {Need(group("G"), _SUB), Need(topic("T"), _SUB)}
    assert _needs(Code.LOCK_BATCH_MQ, body=lock) == _needs(Code.UNLOCK_BATCH_MQ, body=lock) == expected
    acks = {"brokerName": "b", "acks": [{"c": "G", "t": "T"}, {"c": "H", "t": "%RETRY%H+T"}]}
    assert _needs(Code.BATCH_ACK_MESSAGE, body=acks) == expected | {Need(group("H"), _SUB)}
    mode = {"consumerGroup": "G", "topic": "T", "mode": "POP"}
    assert _needs(Code.SET_MESSAGE_REQUEST_MODE, body=mode) == {
        Need(group("G"), _UPDATE),
        Need(topic("T"), _UPDATE),
    }
    assignment = {"clientId": "c", "consumerGroup": "G", "topic": "T"}
    assert len(_needs(Code.QUERY_ASSIGNMENT, body=assignment)) == 2
    topics = {"topicConfigList": [{"topicName": "T"}, {"topicName": "U"}]}
    assert _needs(Code.UPDATE_AND_CREATE_TOPIC_LIST, body=topics) == {
        Need(topic("T"), _CREATE),
        Need(topic("U"), _CREATE),
    }
    one = {"groupName": "G"}
    assert _needs(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=one) == {Need(group("G"), _CREATE)}
    several = {"groupConfigList": [one, {"groupName": "H"}]}
    assert len(_needs(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=several)) == 2


def test_every_code_of_the_broker_has_been_considered(tmp_path: Path) -> None:
    """A new code needs Update on the cluster until somebody decides otherwise, here or in the table."""
    dispatcher = asyncio.run(build_dispatcher(broker_configuration(tmp_path)))
    by_default = {
        Code(row.code)
        for row in dispatcher.registrations()
        if not _NEEDS.is_listed(row.code) and row.code not in _CHANGES_OF_THE_BROKER
    }
    assert by_default == set()
