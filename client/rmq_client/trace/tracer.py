"""The tracer of one producer or consumer: its hooks, and the producer that sends the spans."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from rmq_remoting.message import Message, MessageExt

from ..clock import now_ms
from ..hooks.consume import CallStatus, ConsumeHook, HookContext
from ..network.instance import ClientInstance
from .dispatcher import TraceDispatcher, Tracing
from .hooks import ConsumeTraceHook, SendTraceHook

# Apache RocketMQ 5.3.3, TraceConstants.GROUP_NAME_PREFIX.
_GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
_MAX_GROUP_CHARACTERS: Final = 200

_numbers = itertools.count(1)


class SpanSender(Protocol):
    """The producer of the spans."""

    async def start(self) -> None:
        """Start the producer."""

    async def stop(self) -> None:
        """Stop the producer."""

    async def send(self, message: Message) -> Any:
        """Send a message. Raises ClientError."""


class Tracer:
    """Started before its producer or consumer, and stopped after it. Belongs to the loop of its start."""

    def __init__(
        self, tracing: Tracing, instance: ClientInstance, group: str, make_sender: Callable[[str], SpanSender]
    ) -> None:
        """Trace with a producer of `make_sender`, which creates an untraced producer of the given group."""
        self._tracing = tracing
        self._group = group
        self._sender = make_sender(f"{_GROUP_PREFIX}-{group[:_MAX_GROUP_CHARACTERS]}-{next(_numbers)}")
        self.dispatcher = TraceDispatcher(tracing, self._sender.send, group)
        self._consumption = ConsumeTraceHook(self.dispatcher, instance.unique_keys.next_key, now_ms)

    def send_hook(self) -> SendTraceHook:
        """Return the hook of a producer."""
        return SendTraceHook(self.dispatcher, self._tracing.topic, self._group, time.time_ns)

    def consume_hooks(self) -> list[ConsumeHook]:
        """Return the hooks of a push consumer."""
        return [self._consumption]

    def consumed_by_poll(self, messages: list[MessageExt]) -> None:
        """Trace messages that `poll` of a pull consumer returns: as consumed, at once and with success.

        (Apache RocketMQ 5.3.3, DefaultLitePullConsumerImpl.poll.)
        """
        context = HookContext(self._group, None, messages)
        self._consumption.before(context)
        context.status, context.success = CallStatus.SUCCESS, True
        self._consumption.after(context)

    async def start(self) -> None:
        """Start sending spans. Raises ClientError."""
        await self._sender.start()
        self.dispatcher.start()

    async def stop(self) -> None:
        """Send the remaining spans, and stop."""
        await self.dispatcher.stop()
        await self._sender.stop()
