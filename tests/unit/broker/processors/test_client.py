"""Heartbeats, departures of clients, members of a group, checks of expressions (codes 34, 35, 38, 46)."""

from __future__ import annotations

import pytest

from rmq_broker.processors.client import ClientProcessor
from rmq_remoting.bodies.checks import CheckClientRequestBody
from rmq_remoting.bodies.group import GetConsumerListByGroupResponseBody
from rmq_remoting.bodies.heartbeat import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import BodyError, CommandError, HeaderError
from tests.support.broker_tables import BrokerTables
from tests.support.peers import Peer
from tests.unit.broker.filtering.parts import message_filters

_CHANGED = "IS_SUB_CHANGE"


class _Broker(BrokerTables):
    def __init__(self, **keys: object) -> None:
        super().__init__(**keys)
        self.clients = ClientProcessor(
            self.consumers,
            self.producers,
            self.groups,
            self.topics,
            message_filters(self.consumers, self.settings),
            self.settings,
            self.clock,
        )

    def heartbeat(self, peer: Peer, *topics: str, fingerprint: int = 0, short: bool = False) -> str:
        """Send one of group CG; whether everything is asked for the next time."""
        data = HeartbeatData(
            client_id="client@1",
            consumer_data_set=[_consumer(*topics)],
            producer_data_set=[ProducerData(group_name="PG")],
            heartbeat_fingerprint=fingerprint,
            without_sub=short,
        )
        response = self.clients.heartbeat(
            peer.connection, _request(RequestCode.HEART_BEAT, body=data.encode())
        )
        assert response.code == ResponseCode.SUCCESS
        assert response.ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
        return response.ext_fields[_CHANGED]


def _consumer(*topics: str, group: str = "CG", unit_mode: bool = False) -> ConsumerData:
    return ConsumerData(
        group_name=group,
        subscription_data_set=[SubscriptionData(topic=topic) for topic in topics],
        unit_mode=unit_mode,
    )


def _request(code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand.request(code, fields, body)


async def test_a_heartbeat_registers_clients_and_makes_the_retry_topic() -> None:
    broker, peer = _Broker(), Peer()
    assert broker.heartbeat(peer, "T") == "true"
    assert broker.consumers.find_subscription("CG", "T") is not None
    assert broker.producers.find_group("PG") is not None
    assert "CG" in broker.groups
    retry = broker.topics.get("%RETRY%CG")
    assert retry is not None and (retry.read_queue_nums, retry.perm, retry.topic_sys_flag) == (1, 6, 0)


async def test_short_heartbeats() -> None:
    broker, one, two = _Broker(), Peer(), Peer()
    assert broker.heartbeat(one, "T", fingerprint=5) == "false"
    assert broker.heartbeat(one, fingerprint=5, short=True) == "false"
    assert broker.heartbeat(two, "U", fingerprint=6) == "true"
    assert broker.heartbeat(one, fingerprint=5, short=True) == "true"
    assert _Broker().heartbeat(one, fingerprint=5, short=True) == "true"


async def test_the_retry_topic_follows_the_order_of_what_is_subscribed() -> None:
    broker, peer = _Broker(), Peer()
    broker.topics.update(TopicConfig(topic_name="Ordered", order=True))
    broker.heartbeat(peer, "Ordered", fingerprint=5)
    version = broker.topics.version
    broker.heartbeat(peer, fingerprint=5, short=True)
    assert broker.topics.is_order("%RETRY%CG") and broker.topics.version == version
    broker.heartbeat(peer, "T", fingerprint=7)
    assert not broker.topics.is_order("%RETRY%CG")


async def test_unit_mode_marks_the_retry_topic() -> None:
    broker, peer = _Broker(), Peer()
    data = HeartbeatData(client_id="c", consumer_data_set=[_consumer("T", unit_mode=True)])
    broker.clients.heartbeat(peer.connection, _request(RequestCode.HEART_BEAT, body=data.encode()))
    retry = broker.topics.get("%RETRY%CG")
    assert retry is not None and retry.topic_sys_flag == 2


async def test_groups_that_may_not_be_are_left_out() -> None:
    broker, peer = _Broker(autoCreateSubscriptionGroup="false"), Peer()
    broker.heartbeat(peer, "T")
    assert broker.consumers.find_group("CG") is None and "%RETRY%CG" not in broker.topics
    assert broker.producers.find_group("PG") is not None


async def test_pull_consumers_can_be_kept_out() -> None:
    broker, peer = _Broker(rejectPullConsumerEnable="true"), Peer()
    pull = _consumer("T", group="Pull").model_copy(update={"consume_type": ConsumeType.CONSUME_ACTIVELY})
    data = HeartbeatData(client_id="c", consumer_data_set=[pull, _consumer("T")])
    broker.clients.heartbeat(peer.connection, _request(RequestCode.HEART_BEAT, body=data.encode()))
    assert broker.consumers.find_group("Pull") is None
    assert broker.consumers.find_group("CG") is not None


async def test_a_heartbeat_without_a_body_is_an_error_of_its_sender() -> None:
    for body in (b"", b"{", b"[]", b'{"consumerDataSet":[]}'):
        with pytest.raises(BodyError):
            _Broker().clients.heartbeat(Peer().connection, _request(RequestCode.HEART_BEAT, body=body))


async def test_a_client_leaves() -> None:
    broker, peer = _Broker(), Peer()
    broker.heartbeat(peer, "T")
    fields = {"clientID": "client@1", "producerGroup": "PG", "consumerGroup": "CG"}
    for _ in range(2):
        response = broker.clients.unregister(peer.connection, _request(RequestCode.UNREGISTER_CLIENT, fields))
        assert response.code == ResponseCode.SUCCESS
        assert broker.consumers.groups() == [] and broker.producers.groups() == {}
    with pytest.raises(HeaderError, match="clientID"):
        broker.clients.unregister(peer.connection, _request(RequestCode.UNREGISTER_CLIENT, {}))


async def test_who_is_no_member_takes_nobody_away() -> None:
    broker, member, stranger = _Broker(), Peer(), Peer()
    broker.heartbeat(member, "T")
    fields = {"clientID": "client@1", "producerGroup": "PG", "consumerGroup": "CG"}
    response = broker.clients.unregister(stranger.connection, _request(RequestCode.UNREGISTER_CLIENT, fields))
    assert response.code == ResponseCode.SUCCESS
    group = broker.consumers.find_group("CG")
    assert group is not None and list(group.members) == [member.connection]


async def test_members_are_listed() -> None:
    broker, one, two = _Broker(), Peer(), Peer()
    request = _request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "CG"})
    with pytest.raises(CommandError, match="no consumer of group CG") as refusal:
        broker.clients.list_consumers(one.connection, request)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    for peer in (one, two):
        broker.heartbeat(peer, "T")
    response = broker.clients.list_consumers(one.connection, request)
    body = GetConsumerListByGroupResponseBody.decode(response.body)
    assert body.consumer_id_list == ["client@1"]


async def test_expressions_are_checked() -> None:
    broker, connection = _Broker(), Peer().connection
    clients = broker.clients

    def check(subscription: SubscriptionData | None) -> RemotingCommand:
        body = CheckClientRequestBody(client_id="c", group="CG", subscription_data=subscription).encode()
        return clients.check_config(connection, _request(RequestCode.CHECK_CLIENT_CONFIG, body=body))

    assert check(SubscriptionData(topic="T", sub_string="a||b")).code == ResponseCode.SUCCESS
    assert check(None).code == ResponseCode.SUCCESS
    empty = clients.check_config(connection, _request(RequestCode.CHECK_CLIENT_CONFIG))
    assert empty.code == ResponseCode.SUCCESS

    def refusal(text: str, kind: str = "SQL92") -> tuple[int, str]:
        with pytest.raises(CommandError) as refused:
            check(SubscriptionData(topic="T", sub_string=text, expression_type=kind))
        return refused.value.code, refused.value.remark

    code, remark = refusal("a > 1")
    assert code == ResponseCode.SYSTEM_ERROR
    assert "does not filter by SQL92" in remark and "enablePropertyFilter=true" in remark
    broker.settings.enable_property_filter = True
    assert check(SubscriptionData(topic="T", sub_string="a > 1", expression_type="SQL92")).code == 0
    for text, problem in [("a > ", "character 5"), ("a > 1)", "character 6: )"), ("", "found the end")]:
        code, remark = refusal(text)
        assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED and problem in remark
    code, remark = refusal("a > 1", "SQL99")
    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED and "SQL99 are not known" in remark


def _groups(*names: str, tags: int = 0) -> HeartbeatData:
    subscription = SubscriptionData(
        topic="T", tags_set=list(map(str, range(tags))), code_set=list(range(tags))
    )
    consumer = ConsumerData(group_name="CG", subscription_data_set=[subscription])
    producers = [ProducerData(group_name=name) for name in names]
    return HeartbeatData(client_id="c", consumer_data_set=[consumer], producer_data_set=producers)


@pytest.mark.parametrize(
    ("data", "code", "remark"),
    [
        (
            _groups(*map(str, range(1024))),
            ResponseCode.INVALID_PARAMETER,
            "a heartbeat of 1025 groups, the limit is 1024",
        ),
        (_groups("PG", ""), ResponseCode.INVALID_PARAMETER, "the producer group name '' is illegal"),
        (_groups("x" * 256), ResponseCode.INVALID_PARAMETER, "1 to 255 printable characters"),
        (_groups("a\nb"), ResponseCode.INVALID_PARAMETER, "1 to 255 printable characters"),
        (_groups(tags=1025), ResponseCode.SUBSCRIPTION_PARSE_FAILED, "1025 tags, the limit is 1024"),
    ],
)
async def test_an_oversized_heartbeat_changes_nothing(data: HeartbeatData, code: int, remark: str) -> None:
    broker, peer = _Broker(), Peer()
    with pytest.raises(CommandError, match=remark) as refused:
        broker.clients.heartbeat(peer.connection, _request(RequestCode.HEART_BEAT, body=data.encode()))
    assert refused.value.code == code
    assert broker.producers.groups() == {}
    assert broker.consumers.find_group("CG") is None


async def test_a_heartbeat_of_many_groups_is_accepted() -> None:
    broker, peer = _Broker(), Peer()
    data = _groups(*map(str, range(1023)), tags=1024)
    broker.clients.heartbeat(peer.connection, _request(RequestCode.HEART_BEAT, body=data.encode()))
    assert len(broker.producers.groups()) == 1023


async def test_a_heartbeat_with_too_many_further_groups_changes_nothing() -> None:
    broker, peer = _Broker(), Peer()
    first = HeartbeatData(
        client_id="c", producer_data_set=[ProducerData(group_name=f"{number}") for number in range(1024)]
    )
    broker.clients.heartbeat(peer.connection, _request(RequestCode.HEART_BEAT, body=first.encode()))
    further = _request(RequestCode.HEART_BEAT, body=_groups("one more").encode())
    with pytest.raises(CommandError, match="1025 producer groups on one connection"):
        broker.clients.heartbeat(peer.connection, further)
    assert len(broker.producers.groups()) == 1024
    assert broker.consumers.find_group("CG") is None
