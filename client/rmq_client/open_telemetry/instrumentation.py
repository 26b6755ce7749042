"""Instrumentation of clients: hooks that record spans and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import ref

from opentelemetry.context import get_current
from opentelemetry.metrics import MeterProvider
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, TracerProvider

from rmq_remoting.message import MessageExt

from .. import __version__
from ..checks import check_each, check_flag, check_optional, refuse
from ..errors import UsageError
from ..hooks.consumption import HookedConsumer
from ..lifetime import Lifetime
from ..network.instance import ClientInstance
from ..producer.lifecycle import ProducerLifecycle
from .attributes import ClientIdentity, ConsumerIdentity
from .consumer import ConsumerTelemetry, Processing
from .producer import ProducerTelemetry
from .signals import LatestSpans, Signals, delivery_key

Client = TypeVar("Client")


class OpenTelemetry:
    """Spans and metrics of any number of producers and consumers.

    ::

        telemetry = OpenTelemetry()
        async with telemetry.instrument(Producer("127.0.0.1:9876", group="shop")) as producer:
            ...

    Spans are `send`, `create` (a message of a batch), `receive`, `process` and `settle`, each with the topic
    in its name. Consumers link to the spans of producers by the context in the messages' properties.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        create_spans: bool = True,
        continue_trace: bool = True,
    ) -> None:
        """Without providers and propagator, use the global ones. Raises InvalidArgumentError.

        `create_spans`: each message of `send_batch` gets a span, and consumers link to it. Without, they link
        to the span of the batch. `continue_trace`: the span of processing a single message is a child of the
        span that sent it, unless another span is current. Without, and for several messages, there are links
        alone.
        """
        for name, value, kind in (
            ("tracer_provider", tracer_provider, TracerProvider),
            ("meter_provider", meter_provider, MeterProvider),
            ("propagator", propagator, TextMapPropagator),
        ):
            check_optional(name, value, kind, f"pass a {kind.__name__} or None")
        self._create_spans = check_flag("create_spans", create_spans)
        self._continue_trace = check_flag("continue_trace", continue_trace)
        self._signals = Signals(tracer_provider, meter_provider, propagator, __version__)
        self._received = LatestSpans()

    def instrument(self, client: Client) -> Client:
        """Add the hooks to a producer or consumer that was not started yet, and return it.

        `client` is a Producer, PushConsumer, PullConsumer or SimpleConsumer, of asyncio or `blocking`. Raises
        InvalidArgumentError for another object, and UsageError after the start or the second time.
        """
        inner = _inner(client)
        if isinstance(inner, ProducerLifecycle):
            _refuse_twice(client, inner.hooks)
            inner.add_hook(
                ProducerTelemetry(self._signals, _identity(inner), create_spans=self._create_spans)
            )
        elif isinstance(inner, HookedConsumer):
            _refuse_twice(client, inner.hooks)
            inner.add_hook(
                ConsumerTelemetry(
                    self._signals,
                    self._received,
                    _consumer_identity(inner),
                    continue_trace=self._continue_trace,
                )
            )
        else:
            raise refuse("client", client, "must be a producer or a push, pull or simple consumer")
        return client

    @contextmanager
    def process(self, consumer: Any, messages: MessageExt | Sequence[MessageExt]) -> Iterator[Span]:
        """Return a context manager for the processing of messages that `receive` or `poll` returned.

        Its span is the current one in the block. An exception of the block fails the span, and is raised. A
        push consumer needs no such block: its listener runs in one. Raises InvalidArgumentError.
        """
        inner = _inner(consumer)
        if not isinstance(inner, HookedConsumer):
            raise refuse("consumer", consumer, "must be a pull or simple consumer")
        if isinstance(messages, MessageExt):
            messages = [messages]
        checked = check_each("messages", messages, MessageExt, "pass received messages")
        if not checked:
            raise refuse("messages", messages, "must have at least one message")
        topics = {message.topic for message in checked}
        attributes = _consumer_identity(inner).operation(
            "process", topics.pop() if len(topics) == 1 else None
        )
        found = (self._received.get(delivery_key(inner.group, message)) for message in checked)
        processing = Processing(
            self._signals,
            attributes,
            checked,
            [context for context in found if context is not None],
            ambient=get_current(),
            continue_trace=self._continue_trace,
        )
        try:
            yield processing.span
        except BaseException as error:
            processing.end(error)
            raise
        processing.end(None)


def instrument(client: Client) -> Client:
    """Instrument a producer or consumer that was not started yet, with the global providers, and return it.

    The same as `OpenTelemetry().instrument(client)`.
    """
    return OpenTelemetry().instrument(client)


def _refuse_twice(client: object, hooks: Sequence[object]) -> None:
    if any(isinstance(hook, (ProducerTelemetry, ConsumerTelemetry)) for hook in hooks):
        raise UsageError(f"{client!r} is instrumented already: two instrumentations record everything twice")


def _identity(producer: ProducerLifecycle) -> ClientIdentity:
    return ClientIdentity(producer.namespace, _client_id_of(producer))


def _consumer_identity(consumer: HookedConsumer) -> ConsumerIdentity:
    return ConsumerIdentity(
        consumer.namespace, _client_id_of(consumer), consumer.group, broadcasting=consumer.broadcasting
    )


def _client_id_of(client: Lifetime) -> Callable[[], str | None]:
    """Return a function that returns the client's id. It does not keep the client alive, whose hook it is."""
    known = ref(client)

    def client_id() -> str | None:
        instance = getattr(known(), "_instance", None)
        return instance.client_id if isinstance(instance, ClientInstance) else None

    return client_id


def _inner(client: object) -> object:
    """Return the asyncio object of a blocking one, or the object itself."""
    return getattr(client, "_asyncio", client)
