"""Plans of sends: the kind of a send follows from its target and its properties."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.sending.kinds import SendKind
from rmq_broker.sending.plan import SendPlan
from rmq_broker.store.api import LARGEST_BATCH
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.send import SendMessageRequestHeader, SendTarget
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message import Message
from rmq_remoting.message_batch import encode_batch
from rmq_remoting.message_properties import encode_properties
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.clock import START_MS
from tests.unit.broker.sending.parts import SendBroker, target


class _Planning(SendBroker):
    def plan(self, to: SendTarget, body: bytes, properties: dict[str, str]) -> SendPlan:
        header = SendMessageRequestHeader(to, START_MS, encode_properties(properties))
        return self.planner.plan(header, self.route(to), body)


@pytest.fixture
async def planning(tmp_path: Path) -> AsyncIterator[_Planning]:
    planning = _Planning(tmp_path, maxMessageSize=10_000)
    yield planning
    planning.store.close()


PREPARED = target(sys_flag=MessageSysFlag.TRANSACTION_PREPARED)
GIVEN_UP = target("%RETRY%g", reconsume_times=17)


@pytest.mark.parametrize(
    ("to", "properties", "kind", "delay_level"),
    [
        (target(), {}, SendKind.PLAIN, 0),
        (target(), {"DELAY": "3"}, SendKind.DELAYED, 3),
        (target(), {"TIMER_DELAY_SEC": "3"}, SendKind.TIMED, 0),
        (target(), {"TRAN_MSG": "true"}, SendKind.HALF, 0),
        (PREPARED, {}, SendKind.HALF, 0),
        (GIVEN_UP, {}, SendKind.DEAD_LETTER, 0),
        (GIVEN_UP, {"TRAN_MSG": "true"}, SendKind.DEAD_LETTER, 0),
    ],
)
async def test_the_kind_of_a_single_message(
    planning: _Planning, to: SendTarget, properties: dict[str, str], kind: SendKind, delay_level: int
) -> None:
    plan = planning.plan(to, b"body", {"UNIQ_KEY": "K", **properties})
    assert (plan.kind, plan.delay_level, plan.unique_key) == (kind, delay_level, b"K")


async def test_the_plan_of_a_single_message_has_all_that_is_stored(planning: _Planning) -> None:
    plan = planning.plan(target(), b"body", {"TAGS": "paid"})
    assert (plan.unique_key, plan.tags_code) == (b"MADE", tags_code("paid"))
    assert plan.properties.startswith(b"TAGS\x01paid\x02UNIQ_KEY\x01MADE\x02")


@pytest.mark.parametrize(("topic", "kind"), [("T", SendKind.BATCH), ("U", SendKind.UNIT)])
async def test_the_plan_of_a_batch_has_its_messages(planning: _Planning, topic: str, kind: SendKind) -> None:
    planning.topics.update(TopicConfig(topic_name="U"), {"+queue.type": "BatchCQ"})
    body = encode_batch([Message(topic, b"1"), Message(topic, b"2", keys="k")])

    plan = planning.plan(target(topic, batch=True), body, {"UNIQ_KEY": "K", "TAGS": "paid"})

    assert (plan.kind, plan.unique_key, plan.tags_code) == (kind, b"K", tags_code("paid"))
    assert (list(plan.messages.bodies), plan.has_keys) == ([b"1", b"2"], True)
    assert plan.messages.shared_properties == plan.properties
    assert planning.plan(target(topic, batch=True), body, {}).unique_key == b""


@pytest.mark.parametrize(
    ("size_bytes", "remark"), [(0, "has no body"), (10_001, "is 10001 bytes, the limit is")]
)
@pytest.mark.parametrize("batch", [False, True])
async def test_the_size_of_a_body_is_limited(
    planning: _Planning, size_bytes: int, remark: str, batch: bool
) -> None:
    with pytest.raises(CommandError, match=remark) as refused:
        planning.plan(target(batch=batch), b"x" * size_bytes, {})
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_unit_has_at_most_as_many_messages_as_a_queue_entry_can_count(tmp_path: Path) -> None:
    planning = _Planning(tmp_path)
    planning.topics.update(TopicConfig(topic_name="U"), {"+queue.type": "BatchCQ"})
    one = encode_batch([Message("U", b"x")])
    assert planning.plan(target("U", batch=True), one * LARGEST_BATCH, {}).kind is SendKind.UNIT
    with pytest.raises(CommandError, match=f"the limit is {LARGEST_BATCH}"):
        planning.plan(target("U", batch=True), one * (LARGEST_BATCH + 1), {})
    assert planning.plan(target("T", batch=True), one * (LARGEST_BATCH + 1), {}).kind is SendKind.BATCH
    planning.store.close()
