"""The broker's settings: Apache RocketMQ 5.3.3's keys and defaults.

(BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig, and BrokerStartup's changes to them.)
A part of the broker takes the group of settings that it needs, not all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from rmq_remoting.daemon.access.settings import ACCESS_TABLE, AccessSettings
from rmq_remoting.daemon.common_settings import DaemonSettings, MetricsSettings, ServerSettings
from rmq_remoting.daemon.known_keys import NETWORK_TABLE, KnownKey, read_known_keys
from rmq_remoting.daemon.settings import JavaInt, JavaString, Port, setting
from rmq_remoting.daemon.tls_settings import TlsSettings
from rmq_remoting.protocol_detection import TlsMode

from ..store.api import PullSettings, QuerySettings, ReplicationSettings, StoreSettings
from .access import BrokerAccessSettings
from .acting import ActingSettings
from .cold_data import ColdDataSettings
from .controller import ControllerSettings
from .filters import FilterSettings
from .grpc import GrpcSettings
from .pop import PopSettings
from .registration import IdentitySettings, RegistrationSettings
from .replication import HaSettings
from .sending import SendSettings
from .tiers import TierSettings
from .timers import TimerSettings
from .topics import TopicSettings
from .transactions import TransactionSettings
from .unsupported import UNSUPPORTED

_TABLE = Path(__file__).with_name("apache_settings.tsv")


def known_keys() -> Mapping[str, KnownKey]:
    """Return every key that Apache's broker knows."""
    return read_known_keys(_TABLE, ACCESS_TABLE, NETWORK_TABLE)


class BrokerSettings(
    IdentitySettings,
    RegistrationSettings,
    TopicSettings,
    SendSettings,
    PopSettings,
    TransactionSettings,
    TimerSettings,
    PullSettings,
    ColdDataSettings,
    QuerySettings,
    StoreSettings,
    ReplicationSettings,
    HaSettings,
    ActingSettings,
    ControllerSettings,
    FilterSettings,
    TierSettings,
    GrpcSettings,
    ServerSettings,
    TlsSettings,
    AccessSettings,
    BrokerAccessSettings,
    MetricsSettings,
    DaemonSettings,
):
    """The broker"""

    unsupported: ClassVar = UNSUPPORTED

    listen_port: Port = setting(10911, "listenPort", "Port that clients connect to; 0: any free port.")
    fast_listen_port: JavaInt = setting(
        -1,
        "fastListenPort",
        "Second port, for sends; -1: listenPort - 2, where clients expect it; 0: any free port.",
        minimum=-1,
        maximum=65535,
        ours=True,
    )
    config_black_list: JavaString = setting(
        "configBlackList;brokerConfigPath",
        "configBlackList",
        "Keys that cannot be changed over the network, separated by semicolons.",
    )

    @property
    def protected_keys(self) -> frozenset[str]:
        """Keys that cannot be changed over the network, those that never can included."""
        return super().protected_keys | {"brokerConfigPath"}

    def resolve(self) -> list[str]:
        """Derive ports from the listen port, and check what groups of settings need of each other.

        Apache RocketMQ 5.3.3, BrokerStartup and BrokerController. Raises ValueError.
        """
        notes = self._resolve_role()
        if self.ha_listen_port == 0 and self.listen_port:
            self.ha_listen_port = self.listen_port + 1
        if self.fast_listen_port < 0:
            self.fast_listen_port = max(self.listen_port - 2, 0)
        if self.signature_replay_window_seconds and not self.authentication_enabled:
            raise ValueError(
                "signatureReplayWindowSeconds needs signed requests: set authenticationEnabled=true, too"
            )
        self.check_grpc()
        return [*notes, *super().resolve()]

    def check_grpc(self) -> None:
        """Check that gRPC opens no way around access control and TLS. Raises ValueError."""
        if not self.grpc_server_port:
            return
        if self.authentication_enabled and self.own_keys is None:
            raise ValueError(
                "grpcServerPort with authenticationEnabled=true needs innerClientAuthenticationCredentials: "
                "the gRPC port signs its requests to the broker with these keys"
            )
        if self.signature_replay_window_seconds:
            raise ValueError(
                "signatureReplayWindowSeconds cannot protect the clients of grpcServerPort, because their "
                "signatures do not cover their messages: remove one of the two"
            )
        if self.tls_server_mode is TlsMode.ENFORCING and not self.connects_with_tls:
            raise ValueError(
                "useTLS=false keeps the gRPC port from its own broker, which demands TLS "
                "(tls.server.mode=enforcing): remove useTLS"
            )

    def _resolve_role(self) -> list[str]:
        """Check the broker's id against its role; a master's is 0, whatever is set."""
        if self.enable_controller_mode:
            return self._resolve_controller()
        if self.is_replica:
            if self.broker_id <= 0:
                raise ValueError(
                    f"brokerRole=SLAVE needs a brokerId above 0, other than those of the group's other "
                    f"replicas; brokerId={self.broker_id}"
                )
            return []
        if self.broker_id == 0:
            return []
        note = f"brokerId={self.broker_id} is ignored: a master's id is 0; brokerRole=SLAVE makes a replica"
        self.broker_id = 0
        return [note]

    def _resolve_controller(self) -> list[str]:
        """Check what a broker with a controller needs; id and role come from the controller."""
        if not self.controller_addresses:
            raise ValueError(
                "enableControllerMode=true needs controllerAddr: the addresses of all controllers, host:port "
                "separated by semicolons"
            )
        if self.fetch_controller_addr_by_dns_lookup and len(self.controller_addresses) > 1:
            raise ValueError(
                "fetchControllerAddrByDnsLookup=true needs one name in controllerAddr, host:port"
            )
        for address in self.controller_addresses:
            host, _, port = address.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError(f"controllerAddr: {address!r} is no host:port")
        ignored = {
            "brokerRole": "broker_role",
            "brokerId": "broker_id",
            "haMasterAddress": "ha_master_address",
            "enableAutoInSyncReplicas": "enable_auto_in_sync_replicas",
        }
        found = [key for key, name in ignored.items() if name in self.model_fields_set]
        self.ha_master_address = ""
        self.enable_auto_in_sync_replicas = False
        return [f"{key} is ignored with enableControllerMode=true: the controller decides" for key in found]
