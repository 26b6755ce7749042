"""The needs of requests to a name server: topics, groups and clusters that a user must have rights for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmq_namesrv.brokers import BrokerGroup, BrokerTable
from rmq_namesrv.namesrv import Namesrv
from rmq_namesrv.request_needs import NamesrvNeeds
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.access.needs import Need
from rmq_remoting.daemon.access.policies import EVERY_CLUSTER, Action, Resource, cluster, group, topic
from tests.support.namesrv import namesrv_configuration
from tests.support.rows import each_row

_GET, _UPDATE, _DELETE = (Action.GET,), (Action.UPDATE,), (Action.DELETE,)
_CLIENT = (Action.PUB, Action.SUB, Action.GET)


def _needs(code: int, fields: dict[str, str] | None = None, body: object = None) -> set[Need]:
    brokers = BrokerTable()
    brokers.put(BrokerGroup("A", "broker-a", {0: "10.0.0.1:10911"}))
    content = b"" if body is None else json.dumps(body).encode()
    return set(NamesrvNeeds(brokers).of(RemotingCommand.request(code, fields or {}, content)))


@each_row(
    ("code", "fields", "needs"),
    [
        (Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, {Need(topic("T"), _CLIENT)}),
        (
            Code.GET_ROUTEINFO_BY_TOPIC,
            {"topic": "%RETRY%G"},
            {Need(group("G"), (Action.SUB, Action.GET))},
        ),
        (Code.GET_ROUTEINFO_BY_TOPIC, {}, {Need(topic(""), _CLIENT)}),
        # Producers create topics by the first, and reply by the second.
        (Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}, set()),
        (Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "A_REPLY_TOPIC"}, set()),
        (Code.GET_BROKER_CLUSTER_INFO, {}, set()),
        (
            Code.REGISTER_BROKER,
            {"clusterName": "A", "brokerName": "broker-a"},
            {Need(cluster("A"), _UPDATE)},
        ),
        (Code.REGISTER_BROKER, {"clusterName": "B", "brokerName": "new"}, {Need(cluster("B"), _UPDATE)}),
        # The broker of another cluster is not replaced by rights on one cluster.
        (
            Code.REGISTER_BROKER,
            {"clusterName": "B", "brokerName": "broker-a"},
            {Need(cluster("A"), _UPDATE), Need(cluster("B"), _UPDATE)},
        ),
        (Code.REGISTER_BROKER, {"clusterName": "", "brokerName": "new"}, {Need(EVERY_CLUSTER, _UPDATE)}),
        (Code.UNREGISTER_BROKER, {"clusterName": "B"}, {Need(cluster("B"), _UPDATE)}),
        (Code.BROKER_HEARTBEAT, {"clusterName": "B"}, {Need(cluster("B"), _UPDATE)}),
        (Code.QUERY_DATA_VERSION, {"clusterName": "B"}, {Need(cluster("B"), _UPDATE)}),
        (
            Code.GET_BROKER_MEMBER_GROUP,
            {"clusterName": "A", "brokerName": "broker-a"},
            {Need(cluster("A"), (Action.GET, Action.UPDATE))},
        ),
        (Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}, {Need(cluster("A"), _UPDATE)}),
        (Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "unknown"}, {Need(EVERY_CLUSTER, _UPDATE)}),
        (Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "A"}, {Need(topic("T"), _DELETE)}),
        (Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "%RETRY%G"}, {Need(group("G"), _DELETE)}),
        (Code.GET_TOPICS_BY_CLUSTER, {"cluster": "B"}, {Need(cluster("B"), _GET)}),
        (Code.GET_TOPICS_BY_CLUSTER, {}, {Need(EVERY_CLUSTER, _GET)}),
        (Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}, {Need(EVERY_CLUSTER, _GET)}),
        (Code.UPDATE_NAMESRV_CONFIG, {}, {Need(EVERY_CLUSTER, _UPDATE)}),
        (Code.GET_NAMESRV_CONFIG, {}, {Need(EVERY_CLUSTER, _GET)}),
        (Code.AUTH_CREATE_USER, {"username": "u"}, {Need(EVERY_CLUSTER, _UPDATE)}),
        (9_999, {"clusterName": "A"}, {Need(EVERY_CLUSTER, _UPDATE)}),
    ],
)
def test_needs_by_header(code: int, fields: dict[str, str], needs: set[Need]) -> None:
    assert _needs(code, fields) == needs


def test_a_topic_is_registered_with_rights_on_the_clusters_of_its_brokers() -> None:
    code, fields = Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "T"}
    queues = [{"brokerName": name, "perm": 6, "readQueueNums": 1} for name in ("broker-a", "unknown")]
    assert _needs(code, fields, {"queueDatas": queues[:1]}) == {Need(cluster("A"), _UPDATE)}
    assert _needs(code, fields, {"queueDatas": queues}) == {
        Need(cluster("A"), _UPDATE),
        Need(EVERY_CLUSTER, _UPDATE),
    }
    assert _needs(code, fields, {"queueDatas": []}) == {Need(EVERY_CLUSTER, _UPDATE)}


@pytest.mark.parametrize(
    ("rule", "matches"),
    [("Cluster:*", True), ("*", True), ("Cluster:A", False), ("Cluster:A*", False), ("Topic:*", False)],
)
def test_every_cluster_is_no_single_cluster(rule: str, matches: bool) -> None:
    assert Resource.parse(rule).matches(EVERY_CLUSTER) is matches
    assert str(EVERY_CLUSTER) == "Cluster:*"


def test_every_code_of_the_name_server_has_been_considered(tmp_path: Path) -> None:
    """A new code needs Update on every cluster until somebody decides otherwise in the table."""
    needs = NamesrvNeeds(BrokerTable())
    dispatcher = Namesrv(namesrv_configuration(tmp_path)).dispatcher
    undecided = {row.name for row in dispatcher.registrations() if not needs.is_listed(row.code)}
    assert undecided == set()


def test_operators_have_codes_of_their_own() -> None:
    needs = NamesrvNeeds(BrokerTable())
    for code in (Code.UPDATE_NAMESRV_CONFIG, Code.AUTH_CREATE_USER, Code.DELETE_TOPIC_IN_NAMESRV, 9_999):
        assert needs.is_administration(code)
    for code in (Code.GET_ROUTEINFO_BY_TOPIC, Code.REGISTER_BROKER, Code.REGISTER_TOPIC_IN_NAMESRV):
        assert not needs.is_administration(code)
