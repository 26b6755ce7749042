"""Hooks: code that sees every call of the listener, before and after it. For traces, measurements, checks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

log = logging.getLogger("rmq.client.hooks")


class CallStatus(Enum):
    """How a call of the listener ended (Apache RocketMQ 5.3.3, ConsumeReturnType)."""

    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"  # it returned, but only after the consume timeout
    EXCEPTION = "EXCEPTION"
    RETURNNULL = "RETURNNULL"  # it returned nothing, which was not allowed
    FAILED = "FAILED"  # it wants the messages later


@dataclass(slots=True)
class HookContext:
    """One call of the listener, the same object before and after; `notes` is for the hook's own use.

    Known after the call: `status`, `success` (the listener is done with the messages), `error`,
    `elapsed_seconds`.
    """

    group: str
    queue: MessageQueue | None
    messages: list[MessageExt]
    status: CallStatus | None = None
    success: bool = False
    error: BaseException | None = None
    elapsed_seconds: float = 0.0
    notes: dict[str, object] = field(default_factory=dict)


class ConsumeHook:
    """Derive from this. The methods run where the listener runs; what they raise is logged, no more.

    A hook of a coroutine listener must not block.
    """

    def before(self, context: HookContext) -> None:
        """The listener is about to be called."""

    def after(self, context: HookContext) -> None:
        """The listener has returned, or failed."""


def run_before(hooks: Sequence[ConsumeHook], context: HookContext) -> None:
    """Tell all hooks that a call begins."""
    for hook in hooks:
        try:
            hook.before(context)
        except Exception:
            log.exception("%s failed before a call of the listener", hook)


def run_after(hooks: Sequence[ConsumeHook], context: HookContext) -> None:
    """Tell all hooks that a call has ended."""
    for hook in hooks:
        try:
            hook.after(context)
        except Exception:
            log.exception("%s failed after a call of the listener", hook)
