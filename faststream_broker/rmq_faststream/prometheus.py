"""RocketPrometheusMiddleware: metrics of handled and published messages. Needs prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from faststream._internal.constants import EMPTY
from faststream.message import StreamMessage
from faststream.prometheus import ConsumeAttrs, MetricsSettingsProvider
from faststream.prometheus.middleware import PrometheusMiddleware

from .message import RawMessage, messages_of
from .response import RocketPublishCommand

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class RocketMetricsSettings(MetricsSettingsProvider[RawMessage, RocketPublishCommand]):
    """Tells the middleware topic, size and number of messages."""

    def __init__(self) -> None:
        self.messaging_system = "rocketmq"

    def get_consume_attrs_from_message(self, msg: StreamMessage[RawMessage]) -> ConsumeAttrs:
        """Return the values of one call of a handler. The size is that of all bodies (bytes)."""
        messages = messages_of(msg.raw_message)
        return {
            "destination_name": messages[0].topic,
            "message_size": sum(len(message.body) for message in messages),
            "messages_count": len(messages),
        }

    def get_publish_destination_name_from_cmd(self, cmd: RocketPublishCommand) -> str:
        """Return the topic. (That of a reply is the requester's topic of the cluster, which has no value.)"""
        return cmd.destination


class RocketPrometheusMiddleware(PrometheusMiddleware[RawMessage, RocketPublishCommand]):
    """A middleware for `RocketBroker(middlewares=[...])`; FastStream describes its metrics."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        app_name: str = EMPTY,
        metrics_prefix: str = "faststream",
        received_messages_size_buckets: Sequence[float] | None = None,
        custom_labels: dict[str, str | Callable[[Any], str]] | None = None,
    ) -> None:
        """`received_messages_size_buckets`: bounds of the histogram of sizes (bytes)."""
        super().__init__(
            settings_provider_factory=lambda _: RocketMetricsSettings(),
            registry=registry,
            app_name=app_name,
            metrics_prefix=metrics_prefix,
            received_messages_size_buckets=received_messages_size_buckets,
            custom_labels=custom_labels,
        )
