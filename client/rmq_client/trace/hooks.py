"""Hooks of producers and consumers that create spans.

Source of the rules: Apache RocketMQ 5.3.3, SendMessageTraceHookImpl and ConsumeMessageTraceHookImpl.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_TRANSACTION_PREPARED,
)

from ..hooks.consume import CallStatus, ConsumeHook, HookContext
from ..hooks.send import Recall, SendContext, SendHook, TransactionEnd
from ..results import SendResult, SendStatus
from .dispatcher import TraceDispatcher
from .spans import ConsumeEndSpan, ConsumeStartSpan, EndTransactionSpan, RecallSpan, SendSpan, TracedType

log = logging.getLogger(__name__)

_BEGAN: Final = "rmq.trace.began_ms"
_CALL: Final = "rmq.trace.call"
_DELAYS: Final = frozenset(
    {
        PROPERTY_DELAY_TIME_LEVEL,
        PROPERTY_TIMER_DELAY_MS,
        PROPERTY_TIMER_DELAY_SEC,
        PROPERTY_TIMER_DELIVER_MS,
    }
)
# In the order of Apache's ConsumeReturnType.
_CODES: Final[dict[CallStatus | None, int]] = {status: code for code, status in enumerate(CallStatus)}


class SendTraceHook(SendHook):
    """Creates a span for every sent message, every end of a transaction and every recall.

    Only if the broker accepts traces. (Apache's client always traces ends of transactions, and recalls if a
    system property asks for them.)
    """

    def __init__(
        self, dispatcher: TraceDispatcher, trace_topic: str, group: str, now_ns: Callable[[], int]
    ) -> None:
        """`now_ns` returns nanoseconds since 1970 UTC."""
        self._dispatcher = dispatcher
        self._append = dispatcher.append
        self._group = group
        self._trace_topic = trace_topic
        self.now_ns = now_ns

    def before(self, context: SendContext) -> None:
        """Note the start time."""
        context.notes[_BEGAN] = self._now_ms()

    def after(self, context: SendContext) -> None:
        """Create the span."""
        if context.result is not None:
            began_ms = context.notes[_BEGAN]
            assert isinstance(began_ms, int)
            self._create_span(context.message, context.result, began_ms)

    def sent(self, message: Message, result: SendResult, began_ns: int) -> None:
        """Create the span of a send that has no SendContext, because there is no other hook."""
        try:
            if message.properties:
                self._create_span(message, result, began_ns // 1_000_000)
            elif (region := result.region_id) is not None and message.topic != self._trace_topic:
                self._append(
                    (
                        message.topic,
                        len(message.body),
                        result.msg_id,
                        result.offset_msg_id,
                        region,
                        result.broker_address,
                        result.status is SendStatus.SEND_OK,
                        began_ns,
                        self.now_ns(),
                    )
                )
        except Exception:
            log.exception("span not created topic=%s", message.topic)

    def _now_ms(self) -> int:
        return self.now_ns() // 1_000_000

    def _create_span(self, message: Message, result: SendResult, began_ms: int) -> None:
        if result.region_id is None or message.topic == self._trace_topic:
            return
        properties = message.properties
        self._dispatcher.append(
            SendSpan(
                result.msg_id,
                properties.get(PROPERTY_KEYS),
                properties.get(PROPERTY_TAGS),
                message.topic,
                self._group,
                result.region_id,
                result.broker_address,
                len(message.body),
                began_ms,
                self._now_ms() - began_ms,
                _traced_type(message),
                result.offset_msg_id,
                result.status is SendStatus.SEND_OK,
            )
        )

    def transaction_ended(self, end: TransactionEnd) -> None:
        """Create the span (Apache RocketMQ 5.3.3, EndTransactionTraceHookImpl)."""
        if end.region_id is None:
            return
        properties = end.message.properties
        self._dispatcher.append(
            EndTransactionSpan(
                end.msg_id,
                properties.get(PROPERTY_KEYS),
                properties.get(PROPERTY_TAGS),
                end.message.topic,
                end.group,
                end.region_id,
                end.broker_address,
                self._now_ms(),
                end.msg_id,
                end.state,
                end.from_check,
            )
        )

    def recalled(self, recall: Recall) -> None:
        """Create the span (Apache RocketMQ 5.3.3, DefaultRecallMessageTraceHook)."""
        if recall.region_id is not None:
            self._dispatcher.append(
                RecallSpan(recall.msg_id, recall.topic, recall.group, recall.region_id, self._now_ms())
            )


class ConsumeTraceHook(ConsumeHook):
    """Creates spans for every call of a listener, for messages whose brokers accept traces."""

    def __init__(
        self, dispatcher: TraceDispatcher, new_call_id: Callable[[], str], now_ms: Callable[[], int]
    ) -> None:
        self._dispatcher = dispatcher
        self._new_call_id = new_call_id
        self._now_ms = now_ms

    def before(self, context: HookContext) -> None:
        """Create a start span for each message of the call."""
        traced = [message for message in context.messages if _wants_traces(message)]
        if not traced:
            return
        call_id, now = self._new_call_id(), self._now_ms()
        context.notes[_CALL] = (call_id, traced)
        for message in traced:
            self._dispatcher.append(
                ConsumeStartSpan(
                    message.msg_id,
                    message.properties.get(PROPERTY_KEYS),
                    message.properties.get(PROPERTY_MSG_REGION),
                    context.group,
                    call_id,
                    now,
                    message.reconsume_times,
                )
            )

    def after(self, context: HookContext) -> None:
        """Create an end span for each of them."""
        noted = context.notes.get(_CALL)
        if noted is None:
            return
        assert isinstance(noted, tuple)
        call_id, traced = noted
        cost_ms = int(context.elapsed_seconds * 1000 / len(context.messages))
        now = self._now_ms()
        for message in traced:
            self._dispatcher.append(
                ConsumeEndSpan(
                    message.msg_id,
                    message.properties.get(PROPERTY_KEYS),
                    context.group,
                    call_id,
                    now,
                    cost_ms,
                    context.success,
                    _CODES.get(context.status, 0),
                )
            )


def _wants_traces(message: MessageExt) -> bool:
    return message.properties.get(PROPERTY_TRACE_SWITCH) != "false"


def _traced_type(message: Message) -> TracedType:
    properties = message.properties
    if not properties:
        return TracedType.NORMAL
    if not _DELAYS.isdisjoint(properties):
        return TracedType.DELAY
    if properties.get(PROPERTY_TRANSACTION_PREPARED) == "true":
        return TracedType.TRANSACTION_HALF
    return TracedType.ORDER if PROPERTY_SHARDING_KEY in properties else TracedType.NORMAL
