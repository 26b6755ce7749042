"""Listeners, their results and their contexts."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ...callables import is_coroutine_function
from ...checks import Seconds, check_callable, check_flag, check_int, check_seconds, refuse
from ...errors import UsageError

# Delay level of dead letters (Apache RocketMQ 5.3.3, ConsumeConcurrentlyContext).
DEAD_LETTER: Final = -1


class ConsumeResult(Enum):
    """Result of a listener for its messages.

    COMMIT and ROLLBACK are for orderly listeners that have set `context.auto_commit = False`: all messages
    since the last COMMIT are consumed, or redelivered.
    """

    SUCCESS = "SUCCESS"
    LATER = "LATER"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


@dataclass(slots=True)
class ConsumeContext:
    """One call of a listener without order. Its attributes count when the listener returns.

    `ack_index`: with SUCCESS, the index of the last consumed message; the later ones count as LATER (None:
    all are consumed, -1: none). `delay_level`: delay of the redelivery of refused messages; 0 leaves it to
    the broker, a negative one makes them dead letters at once.
    """

    queue: MessageQueue
    ack_index: int | None = None
    delay_level: int = 0

    def check(self) -> None:
        """Raise UsageError for invalid values."""
        if self.ack_index is not None:
            check_int("context.ack_index", self.ack_index, least=-1)
        check_int("context.delay_level", self.delay_level, least=DEAD_LETTER)


@dataclass(slots=True)
class OrderlyContext:
    """One call of an orderly listener. Its attributes count when the listener returns.

    `auto_commit`: if false, messages are consumed when the listener returns COMMIT, and SUCCESS only goes on
    to the next ones. `suspend_seconds`: pause of the queue after LATER or ROLLBACK, a number or a timedelta;
    None: that of the consumer. `dead_letter`: with LATER or an exception, the messages of the call become
    dead letters at once, and the queue goes on; a broadcasting consumer skips them.
    """

    queue: MessageQueue
    auto_commit: bool = True
    suspend_seconds: Seconds | None = None
    dead_letter: bool = False

    def check(self) -> None:
        """Raise UsageError for invalid values."""
        if self.suspend_seconds is not None:
            self.suspend_seconds = check_seconds("context.suspend_seconds", self.suspend_seconds)
        check_flag("context.auto_commit", self.auto_commit)
        check_flag("context.dead_letter", self.dead_letter)


ListenerOutcome: TypeAlias = ConsumeResult | None
Context: TypeAlias = ConsumeContext | OrderlyContext
Listener: TypeAlias = (
    Callable[[list[MessageExt]], ListenerOutcome]
    | Callable[[list[MessageExt]], Awaitable[ListenerOutcome]]
    | Callable[[list[MessageExt], Any], ListenerOutcome]
    | Callable[[list[MessageExt], Any], Awaitable[ListenerOutcome]]
)
"""Gets messages of one queue, at most `max_messages`, and a ConsumeContext or
OrderlyContext if it has a second parameter. ConsumeResult.LATER, or any exception, means redelivery.
"""


@dataclass(frozen=True, slots=True)
class ListenerKind:
    """How a listener is called.

    `none_means`: the result of a listener that returns nothing. SUCCESS by default; LATER treats it as a
    mistake, as Apache's clients do.
    """

    function: Callable[..., Any]
    is_coroutine: bool
    takes_context: bool
    orderly: bool
    none_means: ConsumeResult = ConsumeResult.SUCCESS
    allowed: frozenset[ConsumeResult] = field(init=False)

    def __post_init__(self) -> None:
        """Set the allowed results: listeners without order cannot commit."""
        results = set(ConsumeResult)
        if not self.orderly:
            results -= {ConsumeResult.COMMIT, ConsumeResult.ROLLBACK}
        object.__setattr__(self, "allowed", frozenset(results))

    def context(self, queue: MessageQueue) -> Context:
        """Return the context of a call."""
        return OrderlyContext(queue) if self.orderly else ConsumeContext(queue)

    def checked(self, outcome: object) -> ListenerOutcome:
        """Return the result of the listener. Raises UsageError for an invalid one."""
        if outcome is None or (isinstance(outcome, ConsumeResult) and outcome in self.allowed):
            return outcome
        if inspect.iscoroutine(outcome):
            outcome.close()
            raise UsageError(
                "the listener returned a coroutine: define it with `async def`, so that it is awaited"
            )
        if isinstance(outcome, ConsumeResult):
            raise UsageError(f"only orderly listeners can return {outcome}")
        raise UsageError(f"the listener must return None or a ConsumeResult, not {outcome!r}")


def inspect_listener(
    listener: Callable[..., Any], *, orderly: bool = False, none_means: ConsumeResult = ConsumeResult.SUCCESS
) -> ListenerKind:
    """Find out how to call the listener. Raises UsageError for an object that is no listener."""
    if none_means not in (ConsumeResult.SUCCESS, ConsumeResult.LATER):
        raise refuse("none_means", none_means, "must be ConsumeResult.SUCCESS or ConsumeResult.LATER")
    takes_context = callable(listener) and _takes_context(listener)
    called_with = "a list of messages and a context" if takes_context else "a list of messages"
    function = check_callable("listener", listener, 2 if takes_context else 1, called_with)
    _check_annotation(listener, called_with)
    return ListenerKind(function, is_coroutine_function(function), takes_context, orderly, none_means)


def _check_annotation(listener: Callable[..., Any], called_with: str) -> None:
    """Refuse a listener whose first parameter is annotated as a class that no list of messages is."""
    try:
        parameters = list(inspect.signature(listener, eval_str=True).parameters.values())
    except Exception:  # a built-in function, or an annotation that is unknown at run time
        return
    kind = parameters[0].annotation if parameters else None
    if not isinstance(kind, type) or kind is inspect.Parameter.empty:
        return
    try:
        fits = issubclass(list, kind) or issubclass(kind, list)
    except TypeError:  # a protocol that allows no such question
        return
    if not fits:
        cure = "annotate it as list[MessageExt], or wrap a listener for bodies in body_listener(...)"
        text = f"is called with {called_with}, but {parameters[0].name!r} is annotated as {kind.__name__}"
        raise refuse("listener", listener, f"{text}: {cure}")


def _takes_context(listener: Callable[..., Any]) -> bool:
    """Whether it has a second positional parameter without a default."""
    try:
        parameters = inspect.signature(listener).parameters.values()
    except (TypeError, ValueError):
        return False  # some built-in functions have no signature: they get only the messages
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return len(positional) > 1 and positional[1].default is inspect.Parameter.empty
