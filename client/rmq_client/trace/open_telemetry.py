"""The OpenTelemetry context in message properties (`traceparent`, `tracestate`, `baggage`).

Spans are the application's: a span that is open at the send becomes the parent of spans that the consumer
opens. Only opentelemetry-api is needed. Without it, messages carry no context.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Protocol

from ..hooks.consume import ConsumeHook, HookContext
from ..hooks.send import SendContext, SendHook

log = logging.getLogger(__name__)

_TOKEN: Final = "rmq.trace.open_telemetry"


class Propagation(Protocol):
    """The functions of opentelemetry-api that the hooks use."""

    def inject(self, carrier: dict[str, str]) -> None:
        """Put the current context into a carrier."""

    def attach(self, carrier: Mapping[str, str]) -> object:
        """Make a carrier's context the current one, and return the token for `detach`."""

    def detach(self, token: Any) -> None:
        """Restore the previous context."""


class _OpenTelemetry:
    def __init__(self, propagate: Any, context: Any) -> None:
        self._propagate = propagate
        self._context = context

    def inject(self, carrier: dict[str, str]) -> None:
        # Most programs have no span open at a send: then there is nothing to carry.
        if current := self._context.get_current():
            self._propagate.inject(carrier, context=current)

    def attach(self, carrier: Mapping[str, str]) -> object:
        return self._context.attach(self._propagate.extract(carrier))

    def detach(self, token: Any) -> None:
        self._context.detach(token)


def propagation() -> Propagation | None:
    """Return the functions of OpenTelemetry, None if it is not installed or cannot be used."""
    try:
        return _OpenTelemetry(
            import_module("opentelemetry.propagate"), import_module("opentelemetry.context")
        )
    except ModuleNotFoundError as error:
        log.debug("messages carry no OpenTelemetry context cause=%s", error)
    except Exception as error:  # OTEL_PROPAGATORS may name a missing one
        log.warning("messages carry no OpenTelemetry context error=%s cause=%s", type(error).__name__, error)
    return None


class InjectContextHook(SendHook):
    """Puts the current context into every message. If that fails, the message is sent without it."""

    def __init__(self, propagation: Propagation) -> None:
        self._propagation = propagation
        self._has_failed = False

    def before(self, context: SendContext) -> None:
        """Put the context into the properties."""
        carrier = dict(context.properties)
        try:
            self._propagation.inject(carrier)
        except Exception:
            level, self._has_failed = logging.DEBUG if self._has_failed else logging.WARNING, True
            log.log(level, "a message carries no OpenTelemetry context", exc_info=True)
        else:
            context.properties.update(carrier)


class AttachContextHook(ConsumeHook):
    """Calls the listener in the context that its (first) message carries."""

    def __init__(self, propagation: Propagation) -> None:
        self._propagation = propagation

    def before(self, context: HookContext) -> None:
        """Attach the context."""
        context.notes[_TOKEN] = self._propagation.attach(context.messages[0].properties)

    def after(self, context: HookContext) -> None:
        """Detach the context."""
        if _TOKEN in context.notes:
            self._propagation.detach(context.notes[_TOKEN])
