"""Comparison and copies of group offsets (codes 43, 308, 314)."""

from __future__ import annotations

import pytest

from rmq_broker.processors.admin.offsets import OffsetAdminProcessor, OffsetCloneProcessor
from rmq_remoting.bodies.heartbeat import SubscriptionData
from rmq_remoting.bodies.offsets import ConsumerOffsetSerializeWrapper, QueryCorrectionOffsetBody
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from tests.support.broker_tables import BrokerTables
from tests.unit.broker.processors.parts import FakeStore, answer_of

_LARGEST = 2**63 - 1


class _Broker(BrokerTables):
    def __init__(self) -> None:
        super().__init__()
        self.store = FakeStore()
        for name in ("T", "U"):
            self.topics.update(TopicConfig(topic_name=name))
        self.persisted = 0
        self.admin = OffsetAdminProcessor(self.offsets, self.store.min_offset)
        self.cloning = OffsetCloneProcessor(
            self.offsets, self.groups, self.topics, self.consumers, self._persist
        )

    async def _persist(self) -> None:
        self.persisted += 1

    def correction(self, **fields: str) -> dict[int, int]:
        request = RemotingCommand.request(RequestCode.QUERY_CORRECTION_OFFSET, {"topic": "T", **fields})
        answer = self.admin.correction(self.connection, request)
        return QueryCorrectionOffsetBody.decode(answer.body).correction_offsets

    async def clone(self, target: str = "New", **fields: str) -> RemotingCommand:
        fields = {"srcGroup": "CG", "destGroup": target, **fields}
        request = RemotingCommand.request(RequestCode.CLONE_GROUP_OFFSET, fields)
        return await answer_of(self.cloning.clone(self.connection, request))


async def test_all_offsets() -> None:
    broker = _Broker()
    broker.offsets.commit("CG", "T", 2, 7)
    request = RemotingCommand.request(RequestCode.GET_ALL_CONSUMER_OFFSET)
    response = broker.admin.get_all(broker.connection, request)
    assert ConsumerOffsetSerializeWrapper.decode(response.body).offset_table == {"T@CG": {2: 7}}


async def test_the_lowest_offset_of_all_groups() -> None:
    broker = _Broker()
    for group, offsets in (("A", {0: 5, 1: 50}), ("B", {0: 8, 1: 20}), ("C", {0: 2, 1: 10})):
        for queue_id, offset in offsets.items():
            broker.offsets.commit(group, "T", queue_id, offset)
    broker.offsets.commit("A", "U", 0, 1)
    broker.store.first_offsets["T", 0] = 3  # C is at the end of the queue
    assert broker.correction(compareGroup="Unknown") == {0: 5, 1: 10}
    assert broker.correction(compareGroup="Unknown", filterGroups="A,C") == {0: 8, 1: 20}
    assert broker.offsets.query("C", "T", 1) == 10, "who is left out keeps its offsets"
    assert broker.correction(compareGroup="A", filterGroups="A,C") == {0: _LARGEST, 1: 20}
    assert broker.correction(compareGroup="A", filterGroups="A,B,C") == {}


async def test_offsets_are_copied() -> None:
    broker = _Broker()
    broker.groups.find("New")
    for topic, offset in (("T", 5), ("U", 6), ("Gone", 7)):
        broker.offsets.commit("CG", topic, 1, offset)
    await broker.clone(topic="T")
    assert broker.offsets.topics_of("New") == {"T"} and broker.persisted == 1
    await broker.clone()
    assert broker.offsets.topics_of("New") == {"T", "U"}
    assert broker.offsets.offsets_of("New", "U") == {1: 6}


async def test_unsubscribed_topics_of_the_source_are_left_out() -> None:
    broker = _Broker()
    broker.groups.find("New")
    for topic in ("T", "U"):
        broker.offsets.commit("CG", topic, 0, 5)
    broker.join(subscriptions=[SubscriptionData(topic="U")])
    answer = await broker.clone(topic="T")
    assert answer.code == ResponseCode.SUCCESS and "nothing to copy" in (answer.remark or "")
    await broker.clone()
    assert broker.offsets.topics_of("New") == {"U"}
    await broker.clone(offline="true")
    assert broker.offsets.topics_of("New") == {"T", "U"}


async def test_invalid_copies_are_refused() -> None:
    broker = _Broker()
    broker.offsets.commit("CG", "T", 0, 5)
    with pytest.raises(CommandError, match="group Nw does not exist") as refusal:
        await broker.clone("Nw")
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    broker.groups.find("New")
    with pytest.raises(CommandError, match="topic Gone does not exist") as refusal:
        await broker.clone(topic="Gone")
    assert refusal.value.code == ResponseCode.TOPIC_NOT_EXIST
    answer = await broker.clone(srcGroup="Unknown")
    assert "group Unknown has no offsets" in (answer.remark or "")
    assert broker.offsets.topics_of("New") == set()
