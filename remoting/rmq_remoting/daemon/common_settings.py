"""Settings that both daemons have: listening, connections, metrics, logs.

Defaults are Apache RocketMQ 5.3.3's (NettyServerConfig, NettyClientConfig) unless the meaning says why not.
"""

from __future__ import annotations

import enum

from ..admission import ConnectionLimits
from ..peer_address import Network
from .admin_allowlist import networks_of
from .settings import (
    ByteCount,
    Count,
    JavaString,
    Natural,
    Port,
    Seconds,
    SettingsGroup,
    live,
    setting,
)


class LogLevel(enum.StrEnum):
    """Least severity that is logged."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class LogFormat(enum.StrEnum):
    """Form of a log line."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class MetricsExporterType(enum.StrEnum):
    """Destination of metrics (Apache RocketMQ 5.3.3, MetricsExporterType).

    Both daemons refuse OTLP_GRPC and LOG (`unsupported_settings.py`).
    """

    DISABLE = "DISABLE"
    OTLP_GRPC = "OTLP_GRPC"
    PROM = "PROM"
    LOG = "LOG"


class ServerSettings(SettingsGroup):
    """Listening"""

    bind_address: JavaString = setting(
        "0.0.0.0", "bindAddress", "Address to listen on; 0.0.0.0 is every interface."
    )
    server_socket_backlog: Count = setting(
        1024, "serverSocketBacklog", "Connections that the operating system queues until they are accepted."
    )
    server_channel_max_idle_seconds: Seconds = setting(
        120,
        "serverChannelMaxIdleTimeSeconds",
        "Time without a complete request or response after which a connection is closed.",
    )
    max_connections: Natural = setting(
        0,
        "maxConnections",
        "Most connections on all ports together; 0: as many as the limit of open files allows.",
        ours=True,
    )
    max_connections_per_host: Natural = setting(
        0,
        "maxConnectionsPerHost",
        "Most connections of one IPv4 address or IPv6 network (/64); 0: three quarters of the most of all.",
        ours=True,
    )
    write_buffer_high_water_mark_bytes: ByteCount = setting(
        0,
        "writeBufferHighWaterMark",
        "High watermark of a connection's unsent data, above which nothing more is read from the peer; "
        "0: 4 MiB.",
    )
    write_buffer_low_water_mark_bytes: ByteCount = setting(
        0,
        "writeBufferLowWaterMark",
        "Low watermark, below which the peer is read from again; 0: a quarter of the high watermark.",
    )
    shutdown_wait_seconds: Seconds = setting(
        30,
        "shutdownWaitTimeSeconds",
        "Time limit of a graceful shutdown; after it the process ends at once.",
        maximum=3600,
    )

    @property
    def connection_limits(self) -> ConnectionLimits:
        """The bounds of connections."""
        return ConnectionLimits(self.max_connections, self.max_connections_per_host)

    @property
    def write_high_bytes(self) -> int:
        """The high watermark in force."""
        return self.write_buffer_high_water_mark_bytes or 4 * 1024 * 1024

    @property
    def write_low_bytes(self) -> int:
        """The low watermark in force."""
        return self.write_buffer_low_water_mark_bytes or self.write_high_bytes // 4

    def resolve(self) -> list[str]:
        """Check that the low watermark is not above the high one."""
        if self.write_low_bytes > self.write_high_bytes:
            raise ValueError(
                f"writeBufferLowWaterMark={self.write_low_bytes} must not be above "
                f"writeBufferHighWaterMark={self.write_high_bytes}"
            )
        return super().resolve()


class MetricsSettings(SettingsGroup):
    """Metrics"""

    metrics_exporter_type: MetricsExporterType = setting(
        MetricsExporterType.PROM,
        "metricsExporterType",
        "PROM: Prometheus fetches metrics over HTTP. DISABLE: no metrics; Apache's default, which leaves an "
        "operator blind.",
    )
    metrics_port: Port = setting(
        5557,
        "metricsPromExporterPort",
        "Port that Prometheus fetches /metrics from; 0: any free port. If the port is taken, the daemon does "
        "not start. Without this setting it uses any free port then.",
    )
    metrics_host: JavaString = setting(
        "", "metricsPromExporterHost", "Address to serve metrics on; empty: bindAddress."
    )
    metrics_label: JavaString = setting(
        "", "metricsLabel", "Labels added to every metric: name:value pairs, separated by commas."
    )

    @property
    def metrics_port_is_default(self) -> bool:
        """Whether nobody has chosen the port, so that another one is as good."""
        return "metrics_port" not in self.model_fields_set

    @property
    def metrics_enabled(self) -> bool:
        """Whether metrics are served."""
        return self.metrics_exporter_type is MetricsExporterType.PROM

    @property
    def metrics_extra_labels(self) -> dict[str, str]:
        """The labels of `metricsLabel`; a pair without a colon is ignored, as in Apache."""
        pairs = (pair.split(":") for pair in self.metrics_label.split(",") if pair.count(":") == 1)
        return {name.strip(): value.strip() for name, value in pairs}


class LogSettings(SettingsGroup):
    """Logs"""

    log_level: LogLevel = live(LogLevel.INFO, "logLevel", "Least severity that is logged.", ours=True)
    log_format: LogFormat = setting(
        LogFormat.AUTO,
        "logFormat",
        "auto: text on a terminal, JSON otherwise. text, json: always that form.",
        ours=True,
    )


class DaemonSettings(LogSettings):
    """Administration"""

    config_black_list: JavaString = setting(
        "", "configBlackList", "Keys that cannot be changed over the network, separated by semicolons."
    )
    admin_allowlist: JavaString = setting(
        "",
        "adminAllowlist",
        "Addresses and ranges from which requests of administration are accepted, separated by commas; "
        "empty: from everywhere.",
        ours=True,
    )

    @property
    def admin_networks(self) -> tuple[Network, ...]:
        """The addresses and ranges of `adminAllowlist`."""
        return networks_of(self.admin_allowlist)

    def resolve(self) -> list[str]:
        """Check that `adminAllowlist` has addresses and ranges."""
        networks_of(self.admin_allowlist)
        return super().resolve()

    @property
    def protected_keys(self) -> frozenset[str]:
        """Keys that cannot be changed over the network, including those that never can."""
        listed = {key.strip() for key in self.config_black_list.split(";")}
        return frozenset(listed | {"configBlackList", "rocketmqHome"}) - {""}
