"""Administration of groups (codes 200, 201, 207, 225, 352, 353)."""

from __future__ import annotations

import pytest

from rmq_broker.processors.admin.groups import GroupAdminProcessor
from rmq_remoting.answers import Result
from rmq_remoting.bodies.group import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import BodyError, CommandError
from tests.support.broker_tables import BrokerTables
from tests.unit.broker.processors.parts import answer_of


class _Broker(BrokerTables):
    def __init__(self, **keys: object) -> None:
        super().__init__(**keys)
        self.persist_calls = 0
        self.deletions_persisted = 0
        self.admin = GroupAdminProcessor(
            self.groups,
            self.offsets,
            self.statistics,
            self.settings,
            self._persist,
            self._persist_deletion,
        )

    async def _persist(self) -> None:
        self.persist_calls += 1

    async def _persist_deletion(self) -> None:
        self.deletions_persisted += 1

    def update(self, config: SubscriptionGroupConfig) -> Result:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        return self.admin.update(self.connection, RemotingCommand.request(code, body=config.encode()))

    def delete(self, **fields: str) -> Result:
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        return self.admin.delete(self.connection, RemotingCommand.request(code, fields))


async def test_a_group_is_created_changed_and_shown() -> None:
    broker = _Broker(autoCreateSubscriptionGroup="false")
    await answer_of(broker.update(SubscriptionGroupConfig(group_name="CG")))
    await answer_of(broker.update(SubscriptionGroupConfig(group_name="CG", retry_queue_nums=2)))
    assert broker.persist_calls == 2

    def get(name: str) -> RemotingCommand:
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        return broker.admin.get(broker.connection, RemotingCommand.request(code, {"group": name}))

    assert SubscriptionGroupConfig.decode(get("CG").body).retry_queue_nums == 2
    with pytest.raises(CommandError) as refusal:
        get("Unknown")
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    request = RemotingCommand.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    wrapper = SubscriptionGroupWrapper.decode(broker.admin.get_all(broker.connection, request).body)
    assert wrapper.subscription_group_table["CG"] == broker.groups.get("CG")


async def test_several_groups_are_created_or_none() -> None:
    broker = _Broker()

    def update(*names: str) -> Result:
        configs = [SubscriptionGroupConfig(group_name=name) for name in names]
        body = SubscriptionGroupList(group_config_list=configs).encode()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        return broker.admin.update_all(broker.connection, RemotingCommand.request(code, body=body))

    await answer_of(update("A", "B"))
    assert "A" in broker.groups and "B" in broker.groups
    with pytest.raises(CommandError, match="illegal") as refusal:
        update("C", "a b")
    assert refusal.value.code == ResponseCode.INVALID_PARAMETER
    assert "C" not in broker.groups


async def test_bad_groups_are_refused() -> None:
    broker = _Broker()
    with pytest.raises(CommandError) as refusal:
        broker.update(SubscriptionGroupConfig(group_name="CG", attributes={"+a": "b"}))
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    for body in (b"", b"{}", b'{"groupName":"CG","retryQueueNums":"many"}'):
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        with pytest.raises(BodyError):
            broker.admin.update(broker.connection, RemotingCommand.request(code, body=body))
    assert "CG" not in broker.groups


async def test_number_of_retry_queues_is_bounded() -> None:
    broker = _Broker(autoCreateSubscriptionGroup="false")
    for queues in (-1, 1025, 3_000_000):
        with pytest.raises(CommandError, match=r"between 0 and 1024 \(maxTopicQueueNums") as refusal:
            broker.update(SubscriptionGroupConfig(group_name="CG", retry_queue_nums=queues))
        assert refusal.value.code == ResponseCode.INVALID_PARAMETER
    assert "CG" not in broker.groups
    for queues in (0, 1024):
        await answer_of(broker.update(SubscriptionGroupConfig(group_name="CG", retry_queue_nums=queues)))
    broker.groups.update(SubscriptionGroupConfig(group_name="Large", retry_queue_nums=2000))
    for queues in (2000, 1999):
        await answer_of(broker.update(SubscriptionGroupConfig(group_name="Large", retry_queue_nums=queues)))


@pytest.mark.parametrize(("fields", "left"), [({}, {"T"}), ({"cleanOffset": "true"}, set())])
async def test_a_group_is_deleted_with_or_without_its_offsets(fields: dict[str, str], left: set[str]) -> None:
    broker = _Broker()
    broker.groups.find("CG")
    broker.offsets.commit("CG", "T", 0, 1)
    broker.statistics.of_group("CG", "T").got_messages += 1
    assert (await answer_of(broker.delete(groupName="CG", **fields))).code == ResponseCode.SUCCESS
    assert "CG" not in broker.groups and broker.statistics.groups == {}
    assert broker.offsets.topics_of("CG") == left
    assert (broker.persist_calls, broker.deletions_persisted) == ((1, 0) if left else (0, 1))
    assert (await answer_of(broker.delete(groupName="CG"))).code == ResponseCode.SUCCESS


async def test_reading_a_topic_can_be_forbidden() -> None:
    broker = _Broker()
    broker.groups.find("CG")

    async def readable(group: str = "CG", **fields: str) -> bool | None:
        code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
        request = RemotingCommand.request(code, {"group": group, "topic": "T", **fields})
        answer = await answer_of(broker.admin.forbid(broker.connection, request))
        body = GroupForbidden.decode(answer.body)
        assert (body.group, body.topic) == (group, "T")
        return body.readable

    assert await readable() is True
    assert await readable(readable="false") is False
    assert await readable() is False
    assert broker.groups.forbidden("CG", "T") and broker.persist_calls == 3
    assert await readable(readable="true") is True
    with pytest.raises(CommandError) as refusal:
        await readable("Unknown", readable="false")
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
