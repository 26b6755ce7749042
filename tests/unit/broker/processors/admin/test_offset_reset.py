"""Offset resets (code 222)."""

from __future__ import annotations

import pytest

from rmq_broker.delivery.turns import LoopSlices
from rmq_broker.processors.admin.offset_reset import ClientSideReset, OffsetResetProcessor, ServerSideReset
from rmq_broker.processors.admin.reset_targets import ResetTargets
from rmq_remoting.bodies.offsets import ResetOffsetBody, ResetOffsetBodyForC
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from tests.support.broker_tables import BrokerTables
from tests.support.peers import Peer
from tests.unit.broker.processors.parts import FakeStore, answer_of


class _Broker(BrokerTables):
    """Topic T with two queues: offsets 10 to 14, stored at 100, 200, ... ; and an empty one."""

    def __init__(self, server_side: bool = True) -> None:
        super().__init__(useServerSideResetOffset=str(server_side).lower())
        self.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        self.groups.find("CG")
        self.store = FakeStore()
        self.store.queues["T", 0] = [100, 200, 300, 400]
        self.store.first_offsets["T", 0] = 10
        self.tool_language = LanguageCode.JAVA
        self.woken: list[tuple[str, int]] = []
        self.persisted: list[dict[int, int]] = []
        slices = LoopSlices()
        self.processor = OffsetResetProcessor(
            ResetTargets(self.topics, self.store, "broker-a"),
            ServerSideReset(self.offsets, self.topics, self.groups, slices, self._wake, self._persist),
            ClientSideReset(self.offsets, self.consumers, slices),
            self.settings,
        )

    def _wake(self, topic: str, queue_id: int) -> None:
        self.woken.append((topic, queue_id))

    async def _persist(self) -> None:
        self.persisted.append(self.offsets.offsets_of("CG", "T"))

    async def reset(self, **fields: object) -> dict[int, int]:
        texts = {"topic": "T", "group": "CG", "timestamp": "200", "isForce": "true"}
        texts |= {
            name: str(value).lower() if value in (True, False) else str(value)
            for name, value in fields.items()
        }
        request = RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, texts)
        request.language = self.tool_language
        answer = await answer_of(self.processor.reset(Peer().connection, request))
        assert answer.code == ResponseCode.SUCCESS
        table = ResetOffsetBody.decode(answer.body).offset_table
        assert {(queue.topic, queue.broker_name) for queue in table} == {("T", "broker-a")}
        return {queue.queue_id: offset for queue, offset in table.items()}

    async def refusal(self, **fields: object) -> CommandError:
        with pytest.raises(CommandError) as refusal:
            await self.reset(**fields)
        assert self.persisted == [] and self.woken == []
        return refusal.value


async def test_reset_of_all_queues_to_a_time() -> None:
    broker = _Broker()
    broker.offsets.commit("CG", "T", 0, 14)
    assert await broker.reset(timestamp=200) == {0: 11, 1: 0}
    assert [broker.offsets.take_reset("CG", "T", queue_id) for queue_id in (0, 1)] == [11, 0]
    assert broker.persisted == [{0: 11, 1: 0}], "on disk before it is answered"
    assert broker.woken == [("T", 0), ("T", 1)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"timestamp": -1}, {0: 14, 1: 0}),
        ({"timestamp": 0}, {0: 10, 1: 0}),
        ({"timestamp": 999}, {0: 14, 1: 0}),
        ({"queueId": 0, "timestamp": 201}, {0: 12}),
        ({"queueId": 0, "offset": -1, "timestamp": 201}, {0: 12}),
        ({"queueId": 0, "offset": 10, "timestamp": 0}, {0: 10}),
        ({"queueId": 0, "offset": 14, "timestamp": 0}, {0: 14}),
        ({"queueId": 1, "timestamp": -1}, {1: 0}),
        ({"offset": 12, "timestamp": 0}, {0: 10, 1: 0}),  # an offset applies to one queue only
        ({"timestamp": 300, "isForce": False}, {0: 12, 1: 0}),  # as with Apache, also forward
    ],
)
async def test_reset_targets(fields: dict[str, object], expected: dict[int, int]) -> None:
    broker = _Broker()
    broker.offsets.commit("CG", "T", 0, 11)
    assert await broker.reset(**fields) == expected


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "Unknown"}, ResponseCode.TOPIC_NOT_EXIST, "topic Unknown does not exist"),
        ({"group": "Unknown"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "group Unknown does not exist"),
        ({"queueId": 2}, ResponseCode.INVALID_PARAMETER, "has 2 queues, counted from 0"),
        ({"queueId": 0, "offset": 9}, ResponseCode.SYSTEM_ERROR, "use 10 to 14"),
        ({"queueId": 0, "offset": 15}, ResponseCode.SYSTEM_ERROR, "use 10 to 14"),
        ({"queueId": 0, "offset": 2**62}, ResponseCode.SYSTEM_ERROR, "use 10 to 14"),
        ({"queueId": 0, "offset": -2}, ResponseCode.SYSTEM_ERROR, "use 10 to 14"),
    ],
)
async def test_invalid_resets_are_refused(fields: dict[str, object], code: int, remark: str) -> None:
    broker = _Broker()
    problem = await broker.refusal(**fields)
    assert problem.code == code and remark in problem.remark
    assert len(broker.offsets) == 0


async def test_client_side_reset_notifies_members() -> None:
    broker = _Broker(server_side=False)
    members = [broker.join(), broker.join("c2", language=LanguageCode.CPP)]
    broker.offsets.commit("CG", "T", 0, 14)
    broker.offsets.commit("CG", "T", 1, 0)
    assert await broker.reset(timestamp=200, isForce=False) == {0: 11, 1: 0}
    for peer in members:
        (told,) = peer.received
        assert told.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET and told.is_oneway
        assert (told.ext_fields["group"], told.ext_fields["topic"]) == ("CG", "T")
        assert told.ext_fields["timestamp"] == "200"
    java, cpp = (peer.received[0].body for peer in members)
    table = ResetOffsetBody.decode(java).offset_table
    assert sorted((queue.queue_id, offset) for queue, offset in table.items()) == [(0, 11), (1, 0)]
    entries = ResetOffsetBodyForC.decode(cpp).offset_table
    assert sorted((entry.queue_id, entry.offset) for entry in entries) == [(0, 11), (1, 0)]
    assert broker.offsets.query("CG", "T", 0) == 14
    assert not broker.offsets.has_reset("CG", "T", 0)


@pytest.mark.parametrize(("force", "expected"), [(False, 11), (True, 13)])
async def test_forward_reset_needs_force(force: bool, expected: int) -> None:
    broker = _Broker(server_side=False)
    broker.join()
    broker.offsets.commit("CG", "T", 0, 11)
    assert await broker.reset(queueId=0, timestamp=400, isForce=force) == {0: expected}


async def test_request_of_a_c_tool_keeps_its_body_format() -> None:
    broker = _Broker(server_side=False)
    member = broker.join()
    broker.offsets.commit("CG", "T", 0, 14)
    broker.tool_language = LanguageCode.CPP
    await broker.reset(queueId=0)
    assert ResetOffsetBodyForC.decode(member.received[0].body).offset_table[0].offset == 11


async def test_client_side_reset_without_members() -> None:
    broker = _Broker(server_side=False)
    problem = await broker.refusal()
    assert problem.code == ResponseCode.SYSTEM_ERROR and "has no offset" in problem.remark
    for queue_id in (0, 1):
        broker.offsets.commit("CG", "T", queue_id, 0)
    problem = await broker.refusal()
    assert problem.code == ResponseCode.CONSUMER_NOT_ONLINE
    old = broker.join(version=27)
    assert "too old" in (await broker.refusal()).remark
    assert old.received == []
