"""RocketTelemetryMiddleware: spans and metrics of OpenTelemetry. Needs opentelemetry-sdk."""

from __future__ import annotations

from typing import Any, Final

from faststream.message import StreamMessage
from faststream.opentelemetry import TelemetrySettingsProvider
from faststream.opentelemetry.consts import MESSAGING_DESTINATION_PUBLISH_NAME
from faststream.opentelemetry.middleware import TelemetryMiddleware
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.trace import TracerProvider

from .message import RawMessage, messages_of
from .response import RocketPublishCommand

# Names of OpenTelemetry's semantic conventions for messaging systems.
_SYSTEM: Final = "messaging.system"
_MESSAGE_ID: Final = "messaging.message.id"
_CONVERSATION_ID: Final = "messaging.message.conversation_id"
_PAYLOAD_SIZE: Final = "messaging.message.payload_size_bytes"
_BATCH_COUNT: Final = "messaging.batch.message_count"
_DESTINATION: Final = "messaging.destination.name"
_TAG: Final = "messaging.rocketmq.message.tag"
_KEYS: Final = "messaging.rocketmq.message.keys"


class RocketTelemetrySettings(TelemetrySettingsProvider[RawMessage, RocketPublishCommand]):
    """Tells the middleware names and attributes of spans."""

    def __init__(self) -> None:
        self.messaging_system = "rocketmq"

    def get_consume_attrs_from_message(self, msg: StreamMessage[RawMessage]) -> dict[str, Any]:
        """Return the attributes of the span of a handler. The size is that of all bodies (bytes)."""
        messages = messages_of(msg.raw_message)
        attributes: dict[str, Any] = {
            _SYSTEM: self.messaging_system,
            _MESSAGE_ID: msg.message_id,
            _CONVERSATION_ID: msg.correlation_id,
            _PAYLOAD_SIZE: sum(len(message.body) for message in messages),
            MESSAGING_DESTINATION_PUBLISH_NAME: messages[0].topic,
        }
        if isinstance(msg.raw_message, tuple):
            attributes[_BATCH_COUNT] = len(messages)
        elif messages[0].tags:
            attributes[_TAG] = messages[0].tags
        return attributes

    def get_consume_destination_name(self, msg: StreamMessage[RawMessage]) -> str:
        """Return the topic."""
        return messages_of(msg.raw_message)[0].topic

    def get_publish_attrs_from_cmd(self, cmd: RocketPublishCommand) -> dict[str, Any]:
        """Return the attributes of the span of a publication."""
        attributes: dict[str, Any] = {
            _SYSTEM: self.messaging_system,
            _DESTINATION: cmd.destination,
            _CONVERSATION_ID: cmd.correlation_id,
        }
        if cmd.tag:
            attributes[_TAG] = cmd.tag
        if cmd.keys:
            attributes[_KEYS] = cmd.keys.split() if isinstance(cmd.keys, str) else list(cmd.keys)
        return attributes

    def get_publish_destination_name(self, cmd: RocketPublishCommand) -> str:
        """Return the topic."""
        return cmd.destination


class RocketTelemetryMiddleware(TelemetryMiddleware[RocketPublishCommand]):
    """A middleware for `RocketBroker(middlewares=[...])`. Headers carry the trace to consumers."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        meter: Meter | None = None,
    ) -> None:
        """Without providers, those of the process are used."""
        super().__init__(
            settings_provider_factory=lambda _: RocketTelemetrySettings(),
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            meter=meter,
            include_messages_counters=True,
        )
