"""The settings of the daemon `rmq-proxy`: those of its ports, and those of a process of its own."""

from __future__ import annotations

from typing import ClassVar

from rmq_remoting.daemon.common_settings import LogSettings, MetricsSettings
from rmq_remoting.daemon.settings import JavaBoolean, JavaString, setting
from rmq_remoting.daemon.tls_settings import TlsSettings

from .apache_settings import UNSUPPORTED
from .remoting_settings import RemotingSettings
from .settings import ProxySettings
from .tls_settings import effective_tls


class ProxyDaemonSettings(ProxySettings, RemotingSettings, TlsSettings, MetricsSettings, LogSettings):
    """The proxy"""

    unsupported: ClassVar = UNSUPPORTED

    bind_address: JavaString = setting(
        "0.0.0.0", "bindAddress", "Address to listen on; 0.0.0.0 is every interface.", ours=True
    )
    reuse_port: JavaBoolean = setting(
        False,
        "reusePort",
        "Let further processes of rmq-proxy on this host listen on the same ports (SO_REUSEPORT). The system "
        "spreads the connections over them.",
        ours=True,
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
