"""Admission of timed messages: delivery times, their limits, congested seconds."""

from __future__ import annotations

import pytest

from rmq_broker.delivery.timer_admission import TimerAdmission, TimerCongested, TimersOff
from rmq_broker.delivery.timer_entry import TimerEntry
from rmq_broker.store.api import MessageRejected
from tests.support.broker_settings import broker_settings
from tests.support.clock import START_MS, Clock
from tests.unit.broker.delivery.parts import inner
from tests.unit.broker.timers.parts import with_properties


class _Admission(TimerAdmission):
    """An admission with `waiting` messages in each slot."""

    def __init__(self, waiting: int = 0, chance: float = 0.5, **keys: object) -> None:
        self.entries: list[TimerEntry] = []
        super().__init__(
            broker_settings(**keys), lambda slot: waiting, self.entries.append, Clock(), lambda: chance
        )


def _out_ms(admission: TimerAdmission, topic: str = "T", **properties: str) -> int | None:
    timed = admission.admit(with_properties(properties, topic))
    return None if timed is None else timed.out_ms


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "soon"},
        {"TIMER_DELAY_MS": "1.5"},
        {"TIMER_DELIVER_MS": "²"},
        {"TIMER_DELIVER_MS": "0x10"},
        {"TIMER_DELAY_MS": "9" * 19},
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELAY_SEC": "9" * 18},
        {"TIMER_DELIVER_MS": str(START_MS + 259_200_001)},
    ],
)
def test_invalid_and_too_distant_delivery_times_are_refused(properties: dict[str, str]) -> None:
    ((name, value),) = properties.items()
    with pytest.raises(MessageRejected) as refused:
        _Admission().admit(with_properties(properties))
    assert f"{name}={value!r}"[:40] in str(refused.value)
    assert len(str(refused.value)) < 300


def test_the_longest_delay_is_accepted() -> None:
    assert _out_ms(_Admission(), TIMER_DELAY_SEC="259200") == START_MS + 259_200_000 - 1000
    with pytest.raises(MessageRejected, match=r"the limit is 10000 ms \(timerMaxDelaySec"):
        _Admission(timerMaxDelaySec=10).admit(inner(TIMER_DELAY_SEC="11"))


@pytest.mark.parametrize("topic", ["rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_messages_in_system_topics_are_not_timed(topic: str) -> None:
    assert _out_ms(_Admission(), topic, TIMER_DELAY_SEC="5") is None


def test_messages_for_pops_revive_topic_are_refused() -> None:
    with pytest.raises(MessageRejected, match="POP writes there"):
        _Admission().admit(inner("rmq_sys_REVIVE_LOG_DefaultCluster", TIMER_DELAY_SEC="5"))


def test_timed_messages_are_refused_without_the_timer_wheel() -> None:
    admission = _Admission(timerWheelEnable=False)
    with pytest.raises(TimersOff, match="timerWheelEnable=false"):
        admission.admit(inner(TIMER_DELAY_SEC="5"))
    assert _out_ms(admission, a="b") is None


def test_recalling_a_due_message_is_refused() -> None:
    fields = {"TIMER_DEL_UNIQKEY": "T+K", "TIMER_DELIVER_MS": str(START_MS)}
    with pytest.raises(MessageRejected, match="the message to be recalled is already due"):
        _Admission().admit(with_properties(fields))


@pytest.mark.parametrize(
    ("waiting", "chance", "is_taken"),
    [(10, 0.0, True), (11, 0.09, False), (11, 0.11, True), (19, 0.89, False), (20, 0.99, False)],
)
def test_the_fuller_a_second_the_more_messages_are_refused(
    waiting: int, chance: float, is_taken: bool
) -> None:
    admission = _Admission(waiting, chance, timerCongestNumEachSlot=10)
    if is_taken:
        assert _out_ms(admission, TIMER_DELAY_SEC="5") == START_MS + 4000
    else:
        with pytest.raises(TimerCongested, match=f"{waiting} messages already wait for the same second"):
            admission.admit(inner(TIMER_DELAY_SEC="5"))
