"""Hooks around each call of the listener, for traces, measurements and checks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

log = logging.getLogger(__name__)


class CallStatus(Enum):
    """Outcome of a call of the listener (Apache RocketMQ 5.3.3, ConsumeReturnType)."""

    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"  # returned after the consume timeout
    EXCEPTION = "EXCEPTION"
    RETURNNULL = "RETURNNULL"  # returned nothing, which was not allowed
    FAILED = "FAILED"  # refused the messages


@dataclass(slots=True)
class HookContext:
    """One call of the listener, the same object before and after it; `notes` is for the hook's own use.

    Known after the call: `status`, `success` (the messages are consumed), `error`, `elapsed_seconds`.
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
    """Base class of hooks. The methods run where the listener runs; their exceptions are only logged.

    A hook of a coroutine listener must not block.
    """

    def before(self, context: HookContext) -> None:
        """Called before the listener."""

    def after(self, context: HookContext) -> None:
        """Called after the listener has returned or failed."""


def run_before(hooks: Sequence[ConsumeHook], context: HookContext) -> None:
    """Call `before` of all hooks."""
    for hook in hooks:
        try:
            hook.before(context)
        except Exception:
            log.exception("consume hook failed before the listener hook=%s", type(hook).__name__)


def run_after(hooks: Sequence[ConsumeHook], context: HookContext) -> None:
    """Call `after` of all hooks."""
    for hook in hooks:
        try:
            hook.after(context)
        except Exception:
            log.exception("consume hook failed after the listener hook=%s", type(hook).__name__)
