"""Hooks: code that sees every message, before and after it is sent. For traces, measurements, checks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rmq_remoting.message import Message

from ..results import SendResult
from ..transactions import TransactionState

log = logging.getLogger("rmq.client.hooks")


@dataclass(slots=True)
class SendContext:
    """One send, the same object before and after; `notes` is for the hook's own use.

    Before the send a hook may put properties into `properties`, which travel besides those of `message`;
    the message itself stays as it is. Known afterwards: `result` (None for a one-way send), or `error`.
    """

    group: str
    message: Message
    properties: dict[str, str] = field(default_factory=dict)
    result: SendResult | None = None
    error: BaseException | None = None
    notes: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class TransactionEnd:
    """What became of a transaction, as its broker is told. `from_check`: it has asked for it.

    `region_id` is the broker's region, None where it wants no traces.
    """

    group: str
    message: Message
    msg_id: str
    state: TransactionState
    broker_address: str
    region_id: str | None
    from_check: bool = False


@dataclass(slots=True)
class Recall:
    """A message that its broker has taken back; `region_id` is the broker's region, if it tells it."""

    group: str
    topic: str
    msg_id: str
    region_id: str | None


class SendHook:
    """Derive from this. The methods run on the producer's loop and must not block.

    What `before` raises is raised by the send, and nothing is sent: a check that refuses a message does that.
    What `after` raises is logged.
    """

    def before(self, context: SendContext) -> None:
        """A message is about to be sent."""

    def after(self, context: SendContext) -> None:
        """It was sent, or could not be: all attempts are over."""

    def transaction_ended(self, end: TransactionEnd) -> None:
        """A broker is told what became of a transaction. What this raises is logged."""

    def recalled(self, recall: Recall) -> None:
        """A message was taken back. What this raises is logged."""


class SendHooks:
    """All hooks of one producer."""

    def __init__(self, group: str, hooks: Sequence[SendHook]) -> None:
        self.group = group
        self._hooks = tuple(hooks)

    def begin(self, message: Message) -> SendContext:
        """Tell all hooks that a message is about to be sent."""
        context = SendContext(self.group, message)
        for hook in self._hooks:
            hook.before(context)
        return context

    def end(
        self, context: SendContext, result: SendResult | None, error: BaseException | None = None
    ) -> None:
        """Tell all hooks that the send is over."""
        context.result, context.error = result, error
        self._tell(lambda hook: hook.after(context), "a send")

    def end_all(
        self,
        contexts: Sequence[SendContext],
        results: Sequence[SendResult | None],
        error: BaseException | None = None,
    ) -> None:
        """The same for messages that were sent together."""
        for context, result in zip(contexts, results, strict=True):
            self.end(context, result, error)

    def transaction_ended(self, end: TransactionEnd) -> None:
        """Tell all hooks what became of a transaction."""
        self._tell(lambda hook: hook.transaction_ended(end), "the end of a transaction")

    def recalled(self, recall: Recall) -> None:
        """Tell all hooks that a message was taken back."""
        self._tell(lambda hook: hook.recalled(recall), "a recall")

    def _tell(self, tell: Callable[[SendHook], None], about: str) -> None:
        for hook in self._hooks:
            try:
                tell(hook)
            except Exception:
                log.exception("%s failed after %s", hook, about)


def with_hook_properties(context: SendContext) -> Message:
    """The message with what hooks have added."""
    message = context.message
    if not context.properties:
        return message
    sent = Message(message.topic, message.body, flag=message.flag)
    sent.properties = {**message.properties, **context.properties}
    return sent
