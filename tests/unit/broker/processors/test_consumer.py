"""Consumers' offsets (codes 14 and 15)."""

from __future__ import annotations

import pytest

from rmq_broker.clients.first_subscriptions import FirstSubscriptions
from rmq_broker.clients.subscription import Subscription
from rmq_broker.processors.consumer import ConsumerOffsetProcessor
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError, HeaderError
from tests.support.broker_tables import BrokerTables
from tests.unit.broker.processors.parts import FakeStore


class _Broker(BrokerTables):
    def __init__(self) -> None:
        super().__init__()
        self.store = FakeStore()
        self.store.queues["T", 0] = [100] * 9
        self.log_end = 0
        self.first_subscriptions = FirstSubscriptions(lambda: self.log_end)
        self.processor = ConsumerOffsetProcessor(
            self.offsets, self.groups, self.topics, self.store, self.first_subscriptions
        )

    def subscribe(self, log_end: int, group: str = "CG", topic: str = "T") -> None:
        """The group's first heartbeat comes when the log ends at `log_end`."""
        self.log_end = log_end
        self.first_subscriptions.heard(group, [Subscription(topic)])

    def query(self, **more: str) -> RemotingCommand:
        fields = {"consumerGroup": "CG", "topic": "T", "queueId": "0", **more}
        request = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        return self.processor.query(self.connection, request)

    def update(self, offset: int = 5, **more: str) -> RemotingCommand:
        fields = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": str(offset), **more}
        request = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        return self.processor.update(self.connection, request)

    def code_of_refused_update(self, offset: int = 5, **more: str) -> int:
        with pytest.raises(CommandError) as refusal:
            self.update(offset, **more)
        return refusal.value.code


async def test_a_committed_offset_is_found() -> None:
    broker = _Broker()
    broker.groups.find("CG")
    broker.topics.update(TopicConfig(topic_name="T"))
    assert broker.update(5).code == ResponseCode.SUCCESS
    assert broker.query().ext_fields == {"offset": "5"}
    assert broker.query(setZeroIfNotFound="false").ext_fields == {"offset": "5"}


async def test_a_new_group_starts_at_the_first_message_while_it_is_in_memory() -> None:
    broker = _Broker()
    broker.store.queues["T", 0] = [100, 200]
    assert broker.query().ext_fields == {"offset": "0"}
    assert broker.query(setZeroIfNotFound="true").ext_fields == {"offset": "0"}


async def test_a_new_group_of_an_empty_queue_starts_at_its_end() -> None:
    broker = _Broker()
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    broker.store.queues["T", 0] = []
    assert broker.query().ext_fields == {"offset": "0"}
    assert broker.query(queueId="1").ext_fields == {"offset": "0"}
    broker.store.first_offsets["T", 0] = 7
    assert broker.query().ext_fields == {"offset": "7"}


async def test_a_group_that_subscribed_before_the_first_message_starts_at_it() -> None:
    """Also when so much was stored meanwhile that the message is no longer in memory."""
    broker = _Broker()
    broker.subscribe(log_end=100)
    broker.store.recent_from_ms = 150
    assert broker.query().ext_fields == {"offset": "0"}


async def test_a_group_is_as_old_as_its_subscription_to_the_topic() -> None:
    broker = _Broker()
    broker.subscribe(log_end=0, topic="Other")
    broker.subscribe(log_end=101)
    broker.subscribe(log_end=0, group="Other")
    broker.store.recent_from_ms = 150
    with pytest.raises(CommandError, match="has no offset"):
        broker.query()
    assert broker.query(consumerGroup="Other").ext_fields == {"offset": "0"}


@pytest.mark.parametrize(
    "why", ["no topic", "no such queue", "first message deleted", "no longer in memory", "not wanted"]
)
async def test_otherwise_a_new_group_has_no_offset(why: str) -> None:
    broker = _Broker()
    fields = {"setZeroIfNotFound": "false"} if why == "not wanted" else {}
    if why == "no topic":
        del broker.store.queues["T", 0]
    if why == "no such queue":
        broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
        fields = {"queueId": "1"}
    if why == "first message deleted":
        broker.store.first_offsets["T", 0] = 7
        broker.subscribe(log_end=0)
    if why == "no longer in memory":
        broker.store.recent_from_ms = 150
    with pytest.raises(CommandError, match=r"has no offset for queue [01] of T") as refusal:
        broker.query(**fields)
    assert refusal.value.code == ResponseCode.QUERY_NOT_FOUND


async def test_commits_for_what_does_not_exist_are_refused() -> None:
    broker = _Broker()
    assert broker.code_of_refused_update() == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    broker.groups.find("CG")
    assert broker.code_of_refused_update() == ResponseCode.TOPIC_NOT_EXIST
    broker.topics.update(TopicConfig(topic_name="T"))
    assert broker.code_of_refused_update(queueId="-1") == ResponseCode.INVALID_PARAMETER
    assert broker.code_of_refused_update(-2) == ResponseCode.INVALID_PARAMETER
    assert broker.code_of_refused_update(10) == ResponseCode.INVALID_PARAMETER
    assert broker.code_of_refused_update(2**63 - 1) == ResponseCode.INVALID_PARAMETER
    assert broker.code_of_refused_update(0, queueId="16") == ResponseCode.INVALID_PARAMETER
    assert len(broker.offsets) == 0
    with pytest.raises(HeaderError, match="commitOffset"):
        broker.update(commitOffset="x")


async def test_a_commit_may_reach_the_end_of_the_queue_and_no_further() -> None:
    broker = _Broker()
    broker.groups.find("CG")
    broker.topics.update(TopicConfig(topic_name="T"))
    broker.update(9)
    with pytest.raises(CommandError, match="its next message will be 9"):
        broker.update(10)
    assert broker.query().ext_fields == {"offset": "9"}


async def test_a_queue_that_a_topic_has_had_is_consumed_to_its_end() -> None:
    broker = _Broker()
    broker.groups.find("CG")
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
    broker.store.queues["T", 3] = [100, 200]
    broker.update(1, queueId="3")
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    broker.update(2, queueId="3")
    assert broker.query(queueId="3").ext_fields == {"offset": "2"}
    assert broker.code_of_refused_update(0, queueId="2") == ResponseCode.INVALID_PARAMETER


async def test_backward_commit_is_logged_with_its_peer(caplog: pytest.LogCaptureFixture) -> None:
    broker = _Broker()
    broker.groups.find("CG")
    broker.topics.update(TopicConfig(topic_name="T"))
    for offset in (7, 5, 4):
        broker.update(offset)
    (told,) = [record.getMessage() for record in caplog.records if "backwards" in record.getMessage()]
    assert "peer=192.0.2.1:40000 key=T@CG queue=0 offset=5 before=7 unlogged=0" in told
    assert broker.offsets.backward_commits == 2


async def test_a_commit_does_not_undo_a_reset() -> None:
    broker = _Broker()
    broker.groups.find("CG")
    broker.topics.update(TopicConfig(topic_name="T"))
    broker.offsets.assign_reset("CG", "T", 0, 2)
    response = broker.update(9)
    assert response.code == ResponseCode.SUCCESS and "reset" in (response.remark or "")
    assert broker.query().ext_fields == {"offset": "2"}
    broker.offsets.take_reset("CG", "T", 0)
    broker.update(3)
    assert broker.query().ext_fields == {"offset": "3"}
