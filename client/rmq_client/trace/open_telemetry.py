"""The OpenTelemetry context in message properties (`traceparent`, `tracestate`, `baggage`).

Spans are the application's: one that is open where a message is sent becomes the parent of those that its
consumer opens. Only opentelemetry-api is needed, and without it nothing is carried.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Protocol

from ..hooks.consume import ConsumeHook, HookContext
from ..hooks.send import SendContext, SendHook

log = logging.getLogger("rmq.client.trace")

_TOKEN: Final = "rmq.trace.open_telemetry"


class Propagation(Protocol):
    """What is needed of opentelemetry-api."""

    def inject(self, carrier: dict[str, str]) -> None:
        """Put the current context into a carrier."""

    def attach(self, carrier: Mapping[str, str]) -> object:
        """Make a carrier's context the current one; the token for `detach`."""

    def detach(self, token: Any) -> None:
        """Go back to the context before."""


class _OpenTelemetry:
    def __init__(self, propagate: Any, context: Any) -> None:
        self._propagate = propagate
        self._context = context

    def inject(self, carrier: dict[str, str]) -> None:
        # Most programs have no span open where they send: then there is nothing to carry.
        if current := self._context.get_current():
            self._propagate.inject(carrier, context=current)

    def attach(self, carrier: Mapping[str, str]) -> object:
        return self._context.attach(self._propagate.extract(carrier))

    def detach(self, token: Any) -> None:
        self._context.detach(token)


def propagation() -> Propagation | None:
    """OpenTelemetry's own, if it is installed and can be used."""
    try:
        return _OpenTelemetry(
            import_module("opentelemetry.propagate"), import_module("opentelemetry.context")
        )
    except ModuleNotFoundError as error:
        log.debug("messages carry no OpenTelemetry context: %s", error)
    except Exception as error:  # OTEL_PROPAGATORS may name one that is not there
        log.warning("messages carry no OpenTelemetry context: %s: %s", type(error).__name__, error)
    return None


class InjectContextHook(SendHook):
    """Gives every message the current context. Where that fails, the message goes without it."""

    def __init__(self, propagation: Propagation) -> None:
        self._propagation = propagation
        self._has_failed = False

    def before(self, context: SendContext) -> None:
        """Put it into the properties."""
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
        """Enter it."""
        context.notes[_TOKEN] = self._propagation.attach(context.messages[0].properties)

    def after(self, context: HookContext) -> None:
        """Leave it."""
        if _TOKEN in context.notes:
            self._propagation.detach(context.notes[_TOKEN])
