"""Decisions of handlers as results of the SDK's listener."""

from __future__ import annotations

import pytest
from faststream.exceptions import SetupError
from faststream.message import AckStatus

from rmq_client import ConsumeContext, ConsumeResult, MessageExt, MessageQueue, OrderlyContext
from rmq_faststream.parser import RocketParser
from rmq_faststream.settlement import CURRENT, Settlement

_QUEUE = MessageQueue("orders", "broker-a", 0)


def test_without_a_decision_messages_are_redelivered() -> None:
    context = ConsumeContext(_QUEUE)
    assert Settlement(False, task=None).apply(context) is ConsumeResult.LATER
    assert context.delay_level == 0


def test_acknowledged_messages_are_consumed() -> None:
    settlement = Settlement(False, task=None)
    settlement.ack()
    assert settlement.apply(ConsumeContext(_QUEUE)) is ConsumeResult.SUCCESS


def test_refused_messages_are_redelivered_after_the_chosen_delay() -> None:
    settlement, context = Settlement(False, task=None), ConsumeContext(_QUEUE)
    settlement.nack(delay_level=5, suspend_seconds=None)
    assert settlement.apply(context) is ConsumeResult.LATER
    assert context.delay_level == 5


def test_an_orderly_queue_is_suspended_for_the_chosen_time() -> None:
    settlement, context = Settlement(True, task=None), OrderlyContext(_QUEUE)
    settlement.nack(delay_level=0, suspend_seconds=2.5)
    assert settlement.apply(context) is ConsumeResult.LATER
    assert context.suspend_seconds == 2.5


def test_an_orderly_queue_is_suspended_as_its_consumer_is_configured() -> None:
    context = OrderlyContext(_QUEUE)
    Settlement(True, task=None).apply(context)
    assert context.suspend_seconds is None


def test_rejected_messages_become_dead_letters() -> None:
    settlement, context = Settlement(False, task=None), ConsumeContext(_QUEUE)
    settlement.reject()
    assert settlement.apply(context) is ConsumeResult.LATER
    assert context.delay_level == -1


def test_a_rejected_message_of_an_ordered_queue_becomes_a_dead_letter() -> None:
    settlement, context = Settlement(True, task=None), OrderlyContext(_QUEUE)
    settlement.reject()
    assert settlement.apply(context) is ConsumeResult.LATER
    assert context.dead_letter


def test_options_of_the_other_kind_of_subscriber_are_refused() -> None:
    with pytest.raises(SetupError, match="delay_level=3: an orderly subscriber"):
        Settlement(True, task=None).nack(delay_level=3, suspend_seconds=None)
    with pytest.raises(SetupError, match=r"suspend_seconds=1: only orderly"):
        Settlement(False, task=None).nack(delay_level=0, suspend_seconds=1)


async def test_the_first_decision_about_a_message_counts() -> None:
    settlement = Settlement(False)
    token = CURRENT.set(settlement)
    message = await RocketParser().parse_message(MessageExt("orders", b"x"))
    CURRENT.reset(token)
    await message.nack(delay_level=2)
    await message.reject()
    await message.ack()
    assert message.committed is AckStatus.NACKED
    assert settlement.delay_level == 2


async def test_a_message_outside_of_a_call_can_be_acknowledged() -> None:
    message = await RocketParser().parse_message(MessageExt("orders", b"x"))
    await message.ack()
    assert message.committed is AckStatus.ACKED
