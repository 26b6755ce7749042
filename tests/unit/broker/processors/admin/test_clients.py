"""Connected clients and subscriptions (codes 203, 204, 300, 328, 343, 345)."""

from __future__ import annotations

import pytest

from rmq_broker.clients.client import ConnectedClient
from rmq_broker.clients.consumers import Heartbeat
from rmq_broker.processors.admin.clients import ConnectionAdminProcessor
from rmq_remoting.bodies.connection import ConsumerConnection, ProducerConnection, ProducerTableInfo
from rmq_remoting.bodies.group import GroupList, QuerySubscriptionResponseBody
from rmq_remoting.bodies.heartbeat import ConsumerData, MessageModel, SubscriptionData
from rmq_remoting.bodies.route import TopicList
from rmq_remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from tests.support.broker_tables import BrokerTables
from tests.support.clock import START_MS
from tests.support.peers import Peer


class _Broker(BrokerTables):
    def __init__(self) -> None:
        super().__init__()
        self.admin = ConnectionAdminProcessor(self.consumers, self.producers, self.offsets, "192.0.2.9:10911")
        self.peer = Peer()
        client = ConnectedClient(self.peer.connection, "client@1", LanguageCode.CPP, 400, START_MS)
        subscription = SubscriptionData(
            topic="T", sub_string="a", tags_set=["a"], code_set=[97], sub_version=6
        )
        data = ConsumerData(
            group_name="CG",
            message_model=MessageModel.BROADCASTING,
            subscription_data_set=[subscription],
        )
        self.subscription = subscription
        self.consumers.register(Heartbeat(data), client)
        self.producers.register_all(["PG"], client)


def _request(code: RequestCode, **fields: str) -> RemotingCommand:
    return RemotingCommand.request(code, fields)


async def test_consumers_of_a_group() -> None:
    broker = _Broker()
    request = _request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="CG")
    body = ConsumerConnection.decode(broker.admin.consumers_of_group(broker.peer.connection, request).body)
    assert body.message_model is MessageModel.BROADCASTING
    assert body.subscription_table == {"T": broker.subscription}
    (connection,) = body.connection_set
    assert (connection.client_id, connection.client_addr) == ("client@1", "192.0.2.1:40000")
    assert (connection.language, connection.version) == (LanguageCode.CPP, 400)
    with pytest.raises(CommandError) as refusal:
        broker.admin.consumers_of_group(
            broker.peer.connection, _request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="X")
        )
    assert refusal.value.code == ResponseCode.CONSUMER_NOT_ONLINE


async def test_producers_of_a_group_and_of_all() -> None:
    broker = _Broker()
    request = _request(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="PG")
    body = ProducerConnection.decode(broker.admin.producers_of_group(broker.peer.connection, request).body)
    assert [connection.client_id for connection in body.connection_set] == ["client@1"]
    with pytest.raises(CommandError) as refusal:
        broker.admin.producers_of_group(
            broker.peer.connection, _request(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="X")
        )
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    everything = broker.admin.all_producers(
        broker.peer.connection, _request(RequestCode.GET_ALL_PRODUCER_INFO)
    )
    (info,) = ProducerTableInfo.decode(everything.body).data["PG"]
    assert (info.client_id, info.last_update_timestamp) == ("client@1", START_MS)


async def test_topics_of_groups_and_groups_of_topics() -> None:
    broker = _Broker()
    connection = broker.peer.connection
    broker.offsets.commit("Gone", "T", 0, 1)
    broker.offsets.commit("Gone", "U", 0, 1)
    groups = broker.admin.groups_of_topic(
        connection, _request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
    )
    assert GroupList.decode(groups.body).group_list == ["CG", "Gone"]
    topics = broker.admin.topics_of_group(
        connection, _request(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="Gone")
    )
    body = TopicList.decode(topics.body)
    assert (body.topic_list, body.broker_addr) == (["T", "U"], "192.0.2.9:10911")


@pytest.mark.parametrize("topic", ["T", "U"])
async def test_a_groups_subscription(topic: str) -> None:
    broker = _Broker()
    request = _request(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="CG", topic=topic)
    response = broker.admin.subscription(broker.peer.connection, request)
    body = QuerySubscriptionResponseBody.decode(response.body)
    assert (body.group, body.topic) == ("CG", topic)
    assert body.subscription_data == (broker.subscription if topic == "T" else None)
