"""Settings of the SDK as options: `rocketmq.*`. All that a driver and its executors know of the cluster."""

from __future__ import annotations

from typing import Annotated, Final

from rmq_client import ClientSettings
from rmq_remoting.command import Serialization

from .forms import DurationMs, NameServers, SerializationOption, whole_number
from .parsing import OptionGroup, option

_DEFAULTS: Final = ClientSettings()
_MAX_INT: Final = 2**31 - 1


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


class SdkOptions(OptionGroup):
    """The cluster"""

    name_servers: NameServers = option(
        "rocketmq.namesrv.addr",
        "Name servers of the cluster; everything else is found out from them, on the driver and in tasks.",
    )
    serialization: SerializationOption = option(
        "rocketmq.serialize.type",
        "How headers of requests are written; JSON for servers that know nothing else.",
        Serialization.BINARY,
        default_text="ROCKETMQ",
    )
    request_timeout_ms: DurationMs = option(
        "rocketmq.requestTimeout",
        "How long one request other than a pull may take.",
        _ms(_DEFAULTS.request_timeout_seconds),
        default_text=f"{_DEFAULTS.request_timeout_seconds:g}s",
    )
    connect_timeout_ms: DurationMs = option(
        "rocketmq.connectTimeout",
        "How long connecting may take.",
        _ms(_DEFAULTS.connect_timeout_seconds),
        default_text=f"{_DEFAULTS.connect_timeout_seconds:g}s",
    )
    heartbeat_ms: DurationMs = option(
        "rocketmq.heartbeatInterval",
        "Time between heartbeats to brokers.",
        _ms(_DEFAULTS.heartbeat_seconds),
        default_text=f"{_DEFAULTS.heartbeat_seconds:g}s",
    )
    route_refresh_ms: DurationMs = option(
        "rocketmq.routeRefreshInterval",
        "How old what is known of brokers and their queues may become.",
        _ms(_DEFAULTS.route_refresh_seconds),
        default_text=f"{_DEFAULTS.route_refresh_seconds:g}s",
    )
    max_unpacked_body_bytes: Annotated[int, whole_number(1, _MAX_INT, "bytes")] = option(
        "rocketmq.maxUnpackedBodyBytes",
        "A compressed body that would become larger is an error.",
        _DEFAULTS.max_unpacked_body_bytes,
    )

    @property
    def client_settings(self) -> ClientSettings:
        """The SDK's own settings object."""
        return ClientSettings(
            serialization=self.serialization,
            request_timeout_seconds=self.request_timeout_ms / 1000,
            connect_timeout_seconds=self.connect_timeout_ms / 1000,
            heartbeat_seconds=self.heartbeat_ms / 1000,
            route_refresh_seconds=self.route_refresh_ms / 1000,
            max_unpacked_body_bytes=self.max_unpacked_body_bytes,
        )
