"""Listeners that get the body of a message as a value."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, overload

from rmq_remoting.message import MessageExt

from ...bodies.encoding import read_body
from ...bodies.serializers import ANY_TYPE, Serializer, check_body_type, check_serializer
from ...callables import is_coroutine_function
from ...checks import refuse
from ...errors import UsageError
from .listener import ConsumeContext, ListenerOutcome, OrderlyContext

F = TypeVar("F", bound=Callable[..., ListenerOutcome | Awaitable[ListenerOutcome]])

_MESSAGE: Final = "message"
_CONTEXT: Final = "context"
_BODY: Final = "body"


class AsyncBodyListener(Protocol):
    """What `body_listener` makes of a coroutine function."""

    async def __call__(self, messages: list[MessageExt], context: Any) -> ListenerOutcome:
        """Pass the body of the one message to the function."""


class SyncBodyListener(Protocol):
    """What `body_listener` makes of a function."""

    def __call__(self, messages: list[MessageExt], context: Any) -> ListenerOutcome:
        """Pass the body of the one message to the function."""


@dataclass(frozen=True, slots=True)
class _Binding:
    """A function, what each of its parameters gets, and how the body is read."""

    function: Callable[..., Any]
    parameters: tuple[str, ...]
    kind: Any
    serializer: Serializer

    def call(self, messages: list[MessageExt], context: object) -> Any:
        """Call the function for a message. Raises UnreadableBody."""
        if len(messages) != 1:
            raise UsageError(f"{len(messages)} messages in one call: a body listener gets one at a time")
        (message,) = messages
        values = {
            _MESSAGE: message,
            _CONTEXT: context,
            _BODY: read_body(message, self.kind, self.serializer),
        }
        return self.function(*(values[name] for name in self.parameters))


class OneMessageListener:
    """Base of listeners that get one message a call."""

    __slots__ = ("_binding",)

    def __init__(self, binding: _Binding) -> None:
        self._binding = binding

    def __repr__(self) -> str:
        return f"body_listener({self._binding.function!r})"


class _Coroutine(OneMessageListener):
    async def __call__(self, messages: list[MessageExt], context: Any) -> ListenerOutcome:
        outcome: ListenerOutcome = await self._binding.call(messages, context)
        return outcome


class _Function(OneMessageListener):
    def __call__(self, messages: list[MessageExt], context: Any) -> ListenerOutcome:
        outcome: ListenerOutcome = self._binding.call(messages, context)
        return outcome


def takes_one_message(listener: object) -> bool:
    """Whether a listener gets one message a call, also one that wraps such a listener."""
    wrapped = getattr(listener, "wrapped_listener", None)
    return isinstance(listener, OneMessageListener) or (wrapped is not None and takes_one_message(wrapped))


@overload
def body_listener(
    function: Callable[..., Awaitable[ListenerOutcome]], serializer: Serializer, *, kind: Any = ...
) -> AsyncBodyListener: ...
@overload
def body_listener(
    function: Callable[..., ListenerOutcome], serializer: Serializer, *, kind: Any = ...
) -> SyncBodyListener: ...
def body_listener(function: Callable[..., Any], serializer: Serializer, *, kind: Any = ...) -> Any:
    """Return a listener that calls `function` with the body of each message, read by `serializer`.

    ::

        async def pay(order: Order, message: MessageExt) -> None:
            ...

        listener = body_listener(pay, PydanticSerializer())

    The annotations of the parameters say what the function gets: `MessageExt` the message, `ConsumeContext`
    or `OrderlyContext` the context, and the one other parameter the body, as a value of its type. Without an
    annotation the body is whatever it holds. `kind` is the type of the body where the annotation cannot say
    it. Results and exceptions of the function mean what those of any listener mean.

    A message whose body cannot be read becomes a dead letter at once. Its property `dead_letter_reason` says
    why. Raises InvalidArgumentError for a function with other parameters, and for a type that the serializer
    cannot read.
    """
    check_serializer("serializer", serializer)
    if not callable(function):
        raise refuse("function", function, "must be a function with a parameter for the body")
    parameters, annotated = _inspect(function, kind)
    body_kind = annotated if kind is ... else kind
    check_body_type(serializer, body_kind)
    binding = _Binding(function, parameters, body_kind, serializer)
    return _Coroutine(binding) if is_coroutine_function(function) else _Function(binding)


def _inspect(function: Callable[..., Any], kind: Any) -> tuple[tuple[str, ...], Any]:
    """Return what the parameters of a function get, and the type of the one for the body."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise refuse("function", function, f"has no known parameters ({error}): wrap it") from error
    required = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    rule = "must have one parameter for the body, and may have one MessageExt and one context"
    if any(parameter.kind is parameter.KEYWORD_ONLY for parameter in required):
        raise refuse("function", function, f"{rule}; keyword-only parameters need defaults")
    roles = []
    annotated = ANY_TYPE
    for parameter in required:
        annotation = _annotation(function, parameter, kind)
        role = _role(annotation)
        if role == _BODY:
            annotated = annotation
        roles.append(role)
    if roles.count(_BODY) != 1 or len(set(roles)) != len(roles):
        raise refuse("function", function, f"{rule}, not {signature}")
    return tuple(roles), annotated


def _role(annotation: Any) -> str:
    if isinstance(annotation, type):
        if issubclass(annotation, MessageExt):
            return _MESSAGE
        if issubclass(annotation, (ConsumeContext, OrderlyContext)):
            return _CONTEXT
    return _BODY


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter, kind: Any) -> Any:
    """Return the type of a parameter; that of the body is `kind`, where that is given."""
    if parameter.annotation is parameter.empty:
        return ANY_TYPE
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    try:
        return inspect.signature(function, eval_str=True).parameters[parameter.name].annotation
    except Exception as error:  # whatever evaluating an annotation raises
        known = {one.__name__: one for one in (MessageExt, ConsumeContext, OrderlyContext)}
        if parameter.annotation in known:
            return known[parameter.annotation]
        if kind is not ...:
            return kind
        cure = "import or define it at the top of the module, or pass kind=..."
        raise refuse(
            "function",
            function,
            f"has the annotation {parameter.annotation!r}, unknown here ({error}): {cure}",
        ) from error
