"""Decide whether a message is timed, when it is due, and whether its second is congested.

Source: Apache RocketMQ 5.3.3, HookUtils (checkIfTimerMessage, transformTimerMessage) and
TimerMessageStore.isReject.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq_remoting.errors import shown
from rmq_remoting.message_properties import (
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    decode_properties,
)

from ..store.api import MessageRejected, StoreUnavailable
from ..topics.names import TIMER_TOPIC, TRANSACTION_HALF_TOPIC, is_revive_topic

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..settings.timers import TimerSettings
    from .inner_message import InnerMessage
    from .timer_entry import TimerEntry

# The properties that hold a delivery time, by precedence.
TIMER_PROPERTIES: Final = (PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELIVER_MS)
_NEVER_TIMED: Final = frozenset({TIMER_TOPIC, TRANSACTION_HALF_TOPIC})
_MARK: Final = b"TIMER_D"
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_MS: Final = 1000


class TimersOff(MessageRejected):
    """This broker does not accept timed messages."""


class TimerCongested(StoreUnavailable):
    """Too many messages wait for the same second."""


class Timed(NamedTuple):
    """A message to be delivered later: its timer slot (ms), its delay (ms) and all its properties."""

    out_ms: int
    delay_ms: int
    fields: dict[str, str]


class TimerAdmission:
    """Decides about messages with a delivery time; belongs to the loop's thread."""

    def __init__(
        self,
        settings: TimerSettings,
        waiting_at: Callable[[int], int],
        stored: Callable[[TimerEntry], None],
        now_ms: ClockMs,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`waiting_at` returns the number of messages in a slot; `stored` is called for each one stored."""
        self.stored = stored
        self._settings = settings
        self._waiting_at = waiting_at
        self._now_ms = now_ms
        self._chance = chance

    def admit(self, message: InnerMessage) -> Timed | None:
        """Return the slot of a timed message; None for a message that is delivered at once.

        Raises MessageRejected (TimersOff), StoreUnavailable (TimerCongested).
        """
        if _MARK not in message.properties or message.topic in _NEVER_TIMED:
            return None
        fields = decode_properties(message.properties)
        name = next((name for name in TIMER_PROPERTIES if name in fields), None)
        # A message that has waited already has TIMER_OUT_MS.
        if name is None or PROPERTY_TIMER_OUT_MS in fields:
            return None
        if not self._settings.timer_wheel_enable:
            raise TimersOff(
                f"this broker does not accept timed messages (property {name}, timerWheelEnable=false): send "
                "the message without a delivery time, or to another broker"
            )
        now_ms = self._now_ms()
        deliver_ms = _deliver_ms(name, fields[name], now_ms)
        delay_ms = deliver_ms - now_ms
        is_delete = PROPERTY_TIMER_DEL_UNIQKEY in fields
        if delay_ms <= 0:
            if is_delete:
                raise MessageRejected("the message to be recalled is already due")
            return None
        self._check(message.topic, name, fields[name], delay_ms)
        precision_ms = self._settings.timer_precision_ms
        # A slot is delivered when it is over: a message due at a full second waits in the slot before.
        out_ms = (deliver_ms - 1) // precision_ms * precision_ms
        self._check_congestion(out_ms)
        return Timed(out_ms, delay_ms, fields)

    def _check(self, topic: str, name: str, value: str, delay_ms: int) -> None:
        limit_seconds = self._settings.timer_max_delay_seconds
        if delay_ms > limit_seconds * _MS:
            raise MessageRejected(
                f"property {name}={shown(value)}: the message would wait for {delay_ms} ms, the limit is "
                f"{limit_seconds * _MS} ms (timerMaxDelaySec); nothing was stored"
            )
        if is_revive_topic(topic):
            raise MessageRejected(f"messages for {topic} cannot be timed: only POP writes there")

    def _check_congestion(self, out_ms: int) -> None:
        """Refuse some messages above the limit, and all from twice the limit on.

        (Apache's broker refuses most of them just above the limit.)
        """
        limit, waiting = self._settings.timer_congest_num_each_slot, self._waiting_at(out_ms)
        if waiting > limit and self._chance() < (waiting - limit) / limit:
            raise TimerCongested(
                f"{waiting} messages already wait for the same second: above {limit} "
                f"(timerCongestNumEachSlot) some are refused, above {2 * limit} all. Nothing was stored: "
                "choose another delivery time, or retry later"
            )


def _deliver_ms(name: str, value: str, now_ms: int) -> int:
    """Return when a message is due, in ms, by one of its properties. Raises MessageRejected for no number."""
    if not _NUMBER.fullmatch(value):
        unit = "seconds" if name == PROPERTY_TIMER_DELAY_SEC else "milliseconds"
        raise MessageRejected(f"property {name}={shown(value)} must be a whole number of {unit}")
    number = int(value)
    if name == PROPERTY_TIMER_DELIVER_MS:
        return number
    return now_ms + (number * _MS if name == PROPERTY_TIMER_DELAY_SEC else number)
