"""The settings of the daemon `rmq-proxy`: those of its ports, and those of a process of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from rmq_remoting.daemon.access.settings import ACCESS_TABLE
from rmq_remoting.daemon.common_settings import LogSettings, MetricsSettings
from rmq_remoting.daemon.configuration import Override, Problem, ProblemKind, SettingsError
from rmq_remoting.daemon.known_keys import KnownKey, read_known_keys
from rmq_remoting.daemon.settings import JavaBoolean, JavaString, setting
from rmq_remoting.daemon.tls_settings import TlsSettings
from rmq_remoting.daemon.unsupported_settings import METRICS, NOT_EMPTY, TRUE, UnsupportedSetting, other_than

from .remoting_settings import RemotingSettings
from .settings import ProxySettings
from .tls_settings import effective_tls

_TABLE: Final = Path(__file__).with_name("apache_settings.tsv")


def known_keys() -> Mapping[str, KnownKey]:
    """Return every key of Apache's proxy."""
    return read_known_keys(_TABLE, ACCESS_TABLE)


UNSUPPORTED: Final = (
    UnsupportedSetting(
        "proxyMode",
        other_than("CLUSTER"),
        "LOCAL mode in this daemon",
        "start the broker with grpcServerPort=8081, which serves gRPC in its own process",
    ),
    UnsupportedSetting(
        "useDelayLevel", TRUE, "delivery by delay levels", "remove the key; brokers deliver at any time"
    ),
    *METRICS,
    UnsupportedSetting(
        "metricCollectorMode",
        other_than("off"),
        "collection of the clients' metrics",
        "remove the key",
    ),
    UnsupportedSetting(
        "namesrvDomain", NOT_EMPTY, "an address server", "set namesrvAddr to the name servers"
    ),
)


class ProxyDaemonSettings(ProxySettings, RemotingSettings, TlsSettings, MetricsSettings, LogSettings):
    """The proxy"""

    unsupported: ClassVar = UNSUPPORTED

    bind_address: JavaString = setting(
        "0.0.0.0", "bindAddress", "Address to listen on; 0.0.0.0 is every interface.", ours=True
    )
    announce_consumers: JavaBoolean = setting(
        False,
        "announceConsumers",
        "Open a connection to each broker for each consumer, so that brokers list the consumer as a member "
        "of its group. A broker's own gRPC port always does so.",
        ours=True,
    )

    def resolve(self) -> list[str]:
        """Check that the proxy can ask brokers for users. Raises ValueError."""
        if self.tls_cert_path is not None and self.tls_server_cert_path is None:
            self.tls_server_cert_path, self.tls_server_key_path = self.tls_cert_path, self.tls_key_path
        notes = super().resolve()
        if self.own_keys is None and self.authentication_enabled:
            raise ValueError(
                "authenticationEnabled=true needs innerClientAuthenticationCredentials, the keys of a super "
                "user: the proxy asks the brokers for users and their rules"
            )
        if self.own_keys is None and self.enable_acl_rpc_hook_for_cluster_mode:
            raise ValueError(
                "enableAclRpcHookForClusterMode=true needs innerClientAuthenticationCredentials, the keys to "
                "sign requests with"
            )
        effective_tls(self, self)
        return notes


def read_json(file: Path) -> list[Override]:
    """Return the settings of a file in the form of Apache's rmq-proxy.json. Raises SettingsError."""
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise _unreadable(file, f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise _unreadable(file, f"is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise _unreadable(file, "must be one JSON object, with a member for each setting")
    return [Override(key, _text(value), file.name) for key, value in content.items()]


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _unreadable(file: Path, reason: str) -> SettingsError:
    return SettingsError([Problem(ProblemKind.UNREADABLE, "", "", str(file), reason)])
