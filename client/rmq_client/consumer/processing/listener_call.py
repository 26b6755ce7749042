"""One call of the listener: its messages, whether it may still begin, and its outcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ...bodies.encoding import note_reason
from ...errors import UnreadableBody, UsageError
from ...hooks.consume import CallStatus, ConsumeHook, HookContext, run_after, run_before
from ...namespaces import NO_NAMESPACE, Namespace
from .listener import ConsumeContext, ConsumeResult, Context, ListenerKind, ListenerOutcome
from .process_queue import ProcessQueue

log = logging.getLogger(__name__)

Now = Callable[[], float]
"""Returns seconds of a monotonic clock."""


class ListenerCall:
    """Messages for one call of the listener. The order of an administrator has no process queue.

    Created and evaluated on the network loop. Between `begin` and `end` only a worker writes to it, except
    for `abandoned`: it is set when the result will be ignored, because the call took too long.
    """

    __slots__ = (
        "abandoned",
        "context",
        "elapsed_seconds",
        "error",
        "messages",
        "process_queue",
        "result",
        "skipped",
        "started_at",
    )

    def __init__(self, messages: list[MessageExt], process_queue: ProcessQueue | None) -> None:
        self.messages = messages
        self.process_queue = process_queue
        self.started_at: float | None = None
        self.elapsed_seconds = 0.0
        self.result: ListenerOutcome = None
        self.error: BaseException | None = None
        self.skipped = False
        self.abandoned = False
        self.context: Context | None = None

    @property
    def is_running(self) -> bool:
        """Whether the listener is running, as far as the network loop can tell."""
        return self.started_at is not None

    def begin(self, now: float) -> bool:
        """Start the call, on the worker; whether the listener may be called.

        A worker notes the start before it looks at the queue. A queue is closed before the starts are looked
        at. So one of the two always sees the other, without a lock.
        """
        self.started_at = now
        queue = self.process_queue
        if queue is not None and (queue.closing or now >= queue.lock_expires_at):
            self.skip()
            return False
        return True

    def exceeded(self, limit_seconds: float) -> bool:
        """Whether the call took too long."""
        return self.elapsed_seconds >= limit_seconds

    def skip(self) -> None:
        """Mark the call as not made."""
        self.skipped = True
        self.started_at = None


def result_of(call: ListenerCall, kind: ListenerKind) -> ConsumeResult:
    """Return the result of a finished call; an exception counts as LATER."""
    if call.error is not None:
        return ConsumeResult.LATER
    return call.result or kind.none_means


def is_unreadable(call: ListenerCall, message: MessageExt) -> bool:
    """Whether the listener could not read the body of this message: it becomes a dead letter at once."""
    return isinstance(call.error, UnreadableBody) and call.error.message is message


def consumed_count(call: ListenerCall, kind: ListenerKind) -> int:
    """Return how many messages, from the front, a call without order has consumed."""
    if result_of(call, kind) is not ConsumeResult.SUCCESS:
        return 0
    context = call.context
    if not isinstance(context, ConsumeContext) or context.ack_index is None:
        return len(call.messages)
    return max(0, min(context.ack_index + 1, len(call.messages)))


class ListenerCaller:
    """Calls the listener with its hooks. Exceptions of listeners and hooks do not leave it."""

    def __init__(
        self,
        kind: ListenerKind,
        group: str,
        hooks: Sequence[ConsumeHook] = (),
        *,
        timeout_seconds: float = 900.0,
        namespace: Namespace = NO_NAMESPACE,
        now: Now = time.monotonic,
    ) -> None:
        """`timeout_seconds`: calls that took this long have the status TIME_OUT for hooks.

        The listener and hooks get queues without `namespace`.
        """
        self.now = now
        self.kind = kind
        self._group = group
        self._hooks = tuple(hooks)
        self._timeout_seconds = timeout_seconds
        self._namespace = namespace
        # A context costs half a microsecond: calls that need none are made without.
        self._plain = not hooks and not kind.takes_context

    def invoke(self, call: ListenerCall) -> None:
        """Call a function, and block the worker."""
        began = self.now()
        if not call.begin(began):
            return
        hook_context = None
        try:
            if not self._plain:
                hook_context = self._before(call)
            outcome = self._run_listener(call)
            call.result = None if outcome is None else self.kind.checked(outcome)
        except BaseException as error:  # a worker survives any exception of its listener
            call.error = error
            self._note_unreadable(call)
        _check_context(call)
        call.elapsed_seconds = self.now() - began
        if hook_context is None:
            return
        try:
            self._after(call, hook_context)
        except BaseException:
            log.exception("consume hook failed after the listener group=%s", self._group)

    async def invoke_async(self, call: ListenerCall) -> None:
        """Await a coroutine function. Raises exceptions that end the loop: KeyboardInterrupt, SystemExit."""
        began = self.now()
        if not call.begin(began):
            return
        hook_context = None
        try:
            if not self._plain:
                hook_context = self._before(call)
            outcome = await self._run_listener(call)
            call.result = None if outcome is None else self.kind.checked(outcome)
        except BaseException as error:
            call.error = error
            self._note_unreadable(call)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        finally:
            _check_context(call)
            call.elapsed_seconds = self.now() - began
            if hook_context is not None:
                self._after(call, hook_context)

    def status(self, call: ListenerCall) -> CallStatus:
        """Return the status of a finished call."""
        if call.error is not None:
            return CallStatus.EXCEPTION
        if call.result is None and self.kind.none_means is ConsumeResult.LATER:
            return CallStatus.RETURNNULL
        if call.exceeded(self._timeout_seconds):
            return CallStatus.TIME_OUT
        if call.result in (ConsumeResult.LATER, ConsumeResult.ROLLBACK):
            return CallStatus.FAILED
        return CallStatus.SUCCESS

    def _run_listener(self, call: ListenerCall) -> Any:
        """Call the function; it returns a result, or a coroutine for one."""
        messages = list(call.messages)  # the listener may modify its list
        if call.context is None:
            return self.kind.function(messages)
        return self.kind.function(messages, call.context)

    def _note_unreadable(self, call: ListenerCall) -> None:
        """Note the reason in a message whose body could not be read, and log it once."""
        error = call.error
        if not isinstance(error, UnreadableBody) or not any(one is error.message for one in call.messages):
            return
        if note_reason(error.message, error.reason):
            log.warning("body not readable group=%s cause=%s; the message is not retried", self._group, error)

    def _before(self, call: ListenerCall) -> HookContext | None:
        queue = None
        if call.process_queue is not None:
            queue = self._namespace.unwrap_queue(call.process_queue.queue)
        if self.kind.takes_context:
            call.context = self.kind.context(queue or _queue_of(call.messages[0]))
        if not self._hooks:
            return None
        context = HookContext(self._group, queue, list(call.messages))
        run_before(self._hooks, context)
        return context

    def _after(self, call: ListenerCall, context: HookContext) -> None:
        context.status = self.status(call)
        context.success = result_of(call, self.kind) in (ConsumeResult.SUCCESS, ConsumeResult.COMMIT)
        context.error = call.error
        context.elapsed_seconds = call.elapsed_seconds
        run_after(self._hooks, context)


def _check_context(call: ListenerCall) -> None:
    """Treat invalid attributes of the context as an exception of the listener, and ignore the context."""
    if call.context is None:
        return
    try:
        call.context.check()
    except UsageError as error:
        call.error = call.error or error
        call.context = None


def _queue_of(message: MessageExt) -> MessageQueue:
    return MessageQueue(message.topic, message.broker_name, message.queue_id)
