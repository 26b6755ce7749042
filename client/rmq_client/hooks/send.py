"""Hooks around each send, for traces, measurements and checks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rmq_remoting.message import Message

from ..results import SendResult
from ..transactions import TransactionState

log = logging.getLogger(__name__)


@dataclass(slots=True)
class SendContext:
    """One send, the same object before and after it; `notes` is for the hook's own use.

    Before the send a hook may put properties into `properties`. They are sent in addition to those of
    `message`, which stays as it is. `batch` is the batch of a message of `send_batch`. Known afterwards:
    `result` (None for a one-way send), or `error`.
    """

    group: str
    message: Message
    properties: dict[str, str] = field(default_factory=dict)
    result: SendResult | None = None
    error: BaseException | None = None
    notes: dict[str, object] = field(default_factory=dict)
    batch: SendBatch | None = None


@dataclass(slots=True)
class SendBatch:
    """One call of `send_batch`, the same object before and after it; `notes` is for the hook's own use.

    `contexts` has one SendContext for each message, once all hooks have seen the message. Known afterwards:
    `error`, which is that of each context, too.
    """

    group: str
    messages: Sequence[Message]
    contexts: list[SendContext] = field(default_factory=list)
    error: BaseException | None = None
    notes: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class TransactionEnd:
    """Outcome of a transaction, as its broker is told. `from_check`: the broker asked for it.

    `region_id` is the broker's region, None if it accepts no traces.
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
    """A recalled message; `region_id` is the broker's region, if the broker tells it."""

    group: str
    topic: str
    msg_id: str
    region_id: str | None


class SendHook:
    """Base class of hooks. The methods run on the producer's loop and must not block.

    An exception of `before` is raised by the send, and nothing is sent: a check refuses a message that way.
    An exception of `after` is logged.
    """

    def before(self, context: SendContext) -> None:
        """Called before a message is sent."""

    def after(self, context: SendContext) -> None:
        """Called after the last attempt to send, with the result or the error."""

    def before_batch(self, batch: SendBatch) -> None:
        """Called before the messages of `send_batch`; `before` follows for each of them."""

    def after_batch(self, batch: SendBatch) -> None:
        """Called after `send_batch`, when `after` was called for each of its messages."""

    def transaction_ended(self, end: TransactionEnd) -> None:
        """Called when a broker is told the outcome of a transaction. An exception is logged."""

    def recalled(self, recall: Recall) -> None:
        """Called after a message was recalled. An exception is logged."""


class SendHooks:
    """All hooks of one producer."""

    def __init__(self, group: str, hooks: Sequence[SendHook]) -> None:
        self.group = group
        self._hooks = tuple(hooks)

    def begin(self, message: Message, batch: SendBatch | None = None) -> SendContext:
        """Call `before` of all hooks. If one raises, the hooks before it get the error by `after`."""
        context = SendContext(self.group, message, batch=batch)
        for number, hook in enumerate(self._hooks):
            try:
                hook.before(context)
            except BaseException as error:
                context.error = error
                self._tell(lambda hook: hook.after(context), "a refused send", self._hooks[:number])
                raise
        return context

    def end(
        self, context: SendContext, result: SendResult | None, error: BaseException | None = None
    ) -> None:
        """Call `after` of all hooks."""
        context.result, context.error = result, error
        self._tell(lambda hook: hook.after(context), "a send")

    def begin_batch(self, messages: Sequence[Message]) -> SendBatch:
        """Call `before_batch` of all hooks, and `before` for each message.

        If one raises, the batch ends with that error for all hooks.
        """
        batch = SendBatch(self.group, messages)
        try:
            for hook in self._hooks:
                hook.before_batch(batch)
            for message in messages:
                batch.contexts.append(self.begin(message, batch))
        except BaseException as error:
            self.end_batch(batch, [], error)
            raise
        return batch

    def end_batch(
        self, batch: SendBatch, results: Sequence[SendResult], error: BaseException | None = None
    ) -> None:
        """Call `after` of all hooks for each message of a batch, and `after_batch`."""
        batch.error = error
        for number, context in enumerate(batch.contexts):
            self.end(context, None if error is not None else results[number], error)
        self._tell(lambda hook: hook.after_batch(batch), "a batch")

    def transaction_ended(self, end: TransactionEnd) -> None:
        """Call `transaction_ended` of all hooks."""
        self._tell(lambda hook: hook.transaction_ended(end), "the end of a transaction")

    def recalled(self, recall: Recall) -> None:
        """Call `recalled` of all hooks."""
        self._tell(lambda hook: hook.recalled(recall), "a recall")

    def _tell(
        self, tell: Callable[[SendHook], None], about: str, hooks: Sequence[SendHook] | None = None
    ) -> None:
        for hook in self._hooks if hooks is None else hooks:
            try:
                tell(hook)
            except Exception:
                log.exception("send hook failed hook=%s after=%s", type(hook).__name__, about)


def with_hook_properties(context: SendContext) -> Message:
    """Return the message with the properties that hooks added."""
    message = context.message
    if not context.properties:
        return message
    sent = Message(message.topic, message.body, flag=message.flag)
    sent.properties = {**message.properties, **context.properties}
    return sent
