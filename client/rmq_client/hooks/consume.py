"""Hooks of consumers: receptions of messages, calls of the listener, settlements."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
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


class SettlementKind(Enum):
    """What a consumer tells a broker about messages.

    ACK: the message is consumed. COMMIT: the messages before an offset are consumed. RETRY: the message is
    redelivered after a delay. DEAD_LETTER: the message is redelivered no more. INVISIBLE_TIME: the message
    becomes visible again at another time.
    """

    ACK = "ack"
    COMMIT = "commit"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    INVISIBLE_TIME = "invisible_time"


@dataclass(frozen=True, slots=True)
class Reception:
    """Messages that a consumer received, or the error of the attempt. An empty answer is none.

    `topic` is the topic of all messages, None for several topics. `prefetched`: a push consumer got the
    messages, and their calls of the listener follow. Otherwise they are the result of `poll` or `receive`,
    or the next message of an iteration. `elapsed_seconds` includes waiting for messages.
    """

    group: str
    topic: str | None
    messages: Sequence[MessageExt] = ()
    elapsed_seconds: float = 0.0
    error: BaseException | None = None
    prefetched: bool = False


@dataclass(frozen=True, slots=True)
class Settlement:
    """One settlement, successful or failed by `error`.

    A COMMIT has `offsets`, the next offset to consume of each queue, and no `messages`. The other kinds have
    `messages` of one topic. `delay_seconds`: for how long the messages stay invisible; None if there is no
    such time, or the broker decides. `automatic`: the consumer itself settles, not a call of the application.
    """

    group: str
    kind: SettlementKind
    topic: str
    messages: Sequence[MessageExt] = ()
    offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    delay_seconds: float | None = None
    elapsed_seconds: float = 0.0
    error: BaseException | None = None
    automatic: bool = False
    broker_address: str = ""


class ConsumeHook:
    """Base class of hooks. Exceptions of its methods are only logged.

    `before` and `after` run where the listener of a push consumer runs. `received` and `settled` run on the
    network thread of a push consumer, and on the loop of a pull or simple consumer. When the blocking face
    iterates, `received` runs on the thread of the application. On a loop, and on the network thread, a hook
    must not block.
    """

    def before(self, context: HookContext) -> None:
        """Called before the listener."""

    def after(self, context: HookContext) -> None:
        """Called after the listener has returned or failed."""

    def received(self, reception: Reception) -> None:
        """Called when a consumer has received messages, or failed to."""

    def settled(self, settlement: Settlement) -> None:
        """Called when a broker was told the outcome of messages, or could not be told."""


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
