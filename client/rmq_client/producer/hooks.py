"""Hooks: code that sees every message, before and after it is sent. For traces, measurements, checks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from rmq_remoting.message import Message

from .results import SendResult

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


class SendHook:
    """Derive from this. The methods run on the producer's loop and must not block.

    What `before` raises is raised by the send, and nothing is sent: a check that refuses a message does that.
    What `after` raises is logged.
    """

    def before(self, context: SendContext) -> None:
        """A message is about to be sent."""

    def after(self, context: SendContext) -> None:
        """It was sent, or could not be: all attempts are over."""


class SendHooks:
    """All hooks of one producer."""

    def __init__(self, group: str, hooks: Sequence[SendHook]) -> None:
        self._group = group
        self._hooks = tuple(hooks)

    def begin(self, message: Message) -> SendContext:
        """Tell all hooks that a message is about to be sent."""
        context = SendContext(self._group, message)
        for hook in self._hooks:
            hook.before(context)
        return context

    def end(
        self, context: SendContext, result: SendResult | None, error: BaseException | None = None
    ) -> None:
        """Tell all hooks that the send is over."""
        context.result, context.error = result, error
        for hook in self._hooks:
            try:
                hook.after(context)
            except Exception:
                log.exception("%s failed after a send", hook)

    def end_all(
        self,
        contexts: Sequence[SendContext],
        results: Sequence[SendResult | None],
        error: BaseException | None = None,
    ) -> None:
        """The same for messages that were sent together."""
        for context, result in zip(contexts, results, strict=True):
            self.end(context, result, error)


def as_sent(context: SendContext) -> Message:
    """The message with what hooks have added."""
    message = context.message
    if not context.properties:
        return message
    sent = Message(message.topic, message.body, flag=message.flag)
    sent.properties = {**message.properties, **context.properties}
    return sent
