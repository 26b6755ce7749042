"""Configuration that a broker shares with its routers, subscribers and publishers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from faststream._internal.configs import (
    BrokerConfig,
    UnderlyingDriverAnnotation,
    UnderlyingDriverAnnotations,
)

from rmq_client import ClientSettings, Producer

from .producer import NoProducer, RocketProducer


def _annotations() -> UnderlyingDriverAnnotations:
    """Return the annotation to use for each class that FastStream would otherwise take for a body."""
    # They import the broker, which imports this module.
    import rmq_faststream.annotations as module  # noqa: PLC0415

    from .broker import RocketBroker  # noqa: PLC0415
    from .message import RocketBatchMessage, RocketMessage  # noqa: PLC0415

    names = {
        RocketBroker: "RocketBroker",
        RocketMessage: "RocketMessage",
        RocketBatchMessage: "RocketBatchMessage",
        Producer: "Producer",
    }
    return MappingProxyType(
        {
            driver: UnderlyingDriverAnnotation(
                type_hint=getattr(module, name), module=module.__name__, name=name
            )
            for driver, name in names.items()
        }
    )


@dataclass(kw_only=True)
class RocketBrokerConfig(BrokerConfig):
    """What subscribers need to connect. A router's own values are placeholders until it is included."""

    name_servers: str | Sequence[str] | None = None
    settings: ClientSettings = field(default_factory=ClientSettings)
    producer: RocketProducer = field(default_factory=NoProducer)
    default_driver_annotations: UnderlyingDriverAnnotations = field(default_factory=_annotations)

    def connect(self, producer: Producer) -> None:
        """Publish with a running producer."""
        self.producer.connect(producer, self.fd_config._serializer, self.broker_codec)

    def disconnect(self) -> None:
        """Forget the producer."""
        self.producer.disconnect()
