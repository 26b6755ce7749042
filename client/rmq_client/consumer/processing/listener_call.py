"""One call of the listener: what it is given, whether it may still begin, and how it ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ...errors import UsageError
from ...hooks.consume import CallStatus, ConsumeHook, HookContext, run_after, run_before
from ...namespaces import NO_NAMESPACE, Namespace
from .listener import ConsumeContext, ConsumeResult, Context, ListenerKind, ListenerOutcome
from .process_queue import ProcessQueue

log = logging.getLogger("rmq.client.listener")

Now = Callable[[], float]
"""Seconds of a monotonic clock."""


class ListenerCall:
    """Messages for one call of the listener. An administrator's order has no process queue.

    Made and judged on the network loop; a worker alone writes to it between `begin` and `end`, except that
    `abandoned` is set when its result will be ignored, because it took too long.
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
        """Whether the listener has it now, as far as the network loop can tell."""
        return self.started_at is not None

    def begin(self, now: float) -> bool:
        """Called by a worker first; whether the listener may be called.

        The start is noted before the queue is looked at, and who closes a queue does it before he looks at
        the starts: so one of the two always sees the other, without a lock.
        """
        self.started_at = now
        queue = self.process_queue
        if queue is not None and (queue.closing or now >= queue.lock_expires_at):
            self.skip()
            return False
        return True

    def exceeded(self, limit_seconds: float) -> bool:
        """Whether the call, which is over, took too long."""
        return self.elapsed_seconds >= limit_seconds

    def skip(self) -> None:
        """It will not be done."""
        self.skipped = True
        self.started_at = None


def result_of(call: ListenerCall, kind: ListenerKind) -> ConsumeResult:
    """What the listener says by a call that has ended; an exception says LATER."""
    if call.error is not None:
        return ConsumeResult.LATER
    return call.result or kind.none_means


def consumed_count(call: ListenerCall, kind: ListenerKind) -> int:
    """How many of the messages an unordered listener is done with by a call, from the front."""
    if result_of(call, kind) is not ConsumeResult.SUCCESS:
        return 0
    context = call.context
    if not isinstance(context, ConsumeContext) or context.ack_index is None:
        return len(call.messages)
    return max(0, min(context.ack_index + 1, len(call.messages)))


class ListenerCaller:
    """Calls the listener, with hooks around it. Nothing that a listener or a hook raises goes beyond it."""

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
        """`timeout_seconds`: a call that took this long is told to hooks as timed out.

        `namespace`: what queues are told to the listener and to hooks without.
        """
        self.now = now
        self.kind = kind
        self._group = group
        self._hooks = tuple(hooks)
        self._timeout_seconds = timeout_seconds
        self._namespace = namespace
        # A context costs half a microsecond: who does not look at it need not pay.
        self._plain = not hooks and not kind.takes_context

    def invoke(self, call: ListenerCall) -> None:
        """For functions: the worker waits."""
        began = self.now()
        if not call.begin(began):
            return
        hook_context = None
        try:
            if not self._plain:
                hook_context = self._before(call)
            outcome = self._run_listener(call)
            call.result = None if outcome is None else self.kind.checked(outcome)
        except BaseException as error:  # whatever a listener does, its worker lives on
            call.error = error
        _check_context(call)
        call.elapsed_seconds = self.now() - began
        if hook_context is None:
            return
        try:
            self._after(call, hook_context)
        except BaseException:
            log.exception("a hook of group %s failed after a call of the listener", self._group)

    async def invoke_async(self, call: ListenerCall) -> None:
        """For coroutine functions. Raises what ends the loop itself: KeyboardInterrupt, SystemExit."""
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
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        finally:
            _check_context(call)
            call.elapsed_seconds = self.now() - began
            if hook_context is not None:
                self._after(call, hook_context)

    def status(self, call: ListenerCall) -> CallStatus:
        """How the call ended."""
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
        """What the function returns: an outcome, or a coroutine that has one."""
        messages = list(call.messages)  # which the listener may take from
        if call.context is None:
            return self.kind.function(messages)
        return self.kind.function(messages, call.context)

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
    """What cannot be meant counts as the listener's exception, and nothing that the context says counts."""
    if call.context is None:
        return
    try:
        call.context.check()
    except UsageError as error:
        call.error = call.error or error
        call.context = None


def _queue_of(message: MessageExt) -> MessageQueue:
    return MessageQueue(message.topic, message.broker_name, message.queue_id)
