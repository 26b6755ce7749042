"""Settings of the connections between a master and its replicas."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final

from pydantic import AfterValidator

from rmq_remoting.daemon.settings import (
    ByteCount,
    Count,
    JavaBoolean,
    JavaInt,
    JavaString,
    Milliseconds,
    SettingsGroup,
    Unacceptable,
    live,
    setting,
)

_LARGEST_BATCH: Final = 4 << 20


def _check_networks(value: str) -> str:
    for part in filter(None, (part.strip() for part in value.split(";"))):
        try:
            ipaddress.ip_network(part, strict=False)
        except ValueError as error:
            raise Unacceptable(
                f"IP addresses or networks (10.0.0.7;10.1.0.0/16), separated by semicolons; {error}"
            ) from error
    return value


def _check_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if value and (not host or not port.isdigit() or not 0 < int(port) < 65536):
        raise Unacceptable(f"host:port; {value!r} is not one")
    return value


Networks = Annotated[JavaString, AfterValidator(_check_networks)]
Address = Annotated[JavaString, AfterValidator(_check_address)]


class HaSettings(SettingsGroup):
    """Connections of replicas"""

    ha_listen_port: JavaInt = setting(
        0,
        "haListenPort",
        "Port that replicas connect to; 0: listenPort + 1.",
        minimum=0,
        maximum=65535,
    )
    ha_allowed_replicas: Networks = setting(
        "",
        "haAllowedReplicas",
        "IP addresses and networks that replicas may connect from, separated by semicolons; empty: any. "
        "The protocol of replication has no users: where authenticationEnabled is on, the port is only open "
        "to addresses named here.",
        ours=True,
    )
    max_ha_connections: Count = setting(
        16, "maxHaConnections", "Most connections of replicas at the same time.", ours=True
    )
    ha_master_address: Address = setting(
        "",
        "haMasterAddress",
        "Address that a replica follows, host:port of a master's haListenPort; empty: as name servers tell.",
    )
    ha_send_heartbeat_interval_ms: Milliseconds = live(
        5000, "haSendHeartbeatInterval", "Longest silence of either end of such a connection."
    )
    ha_housekeeping_interval_ms: Milliseconds = live(
        20_000, "haHousekeepingInterval", "Silence of the peer after which the connection is closed."
    )
    ha_transfer_batch_bytes: ByteCount = live(
        32_768,
        "haTransferBatchSize",
        "Most bytes of the log that a master sends at a time.",
        minimum=1,
        maximum=_LARGEST_BATCH - 64,
    )
    ha_flow_control_enable: JavaBoolean = live(
        False, "haFlowControlEnable", "Limit what a master sends each replica in a second."
    )
    max_ha_transfer_bytes_per_second: ByteCount = live(
        100 << 20, "maxHaTransferByteInSecond", "This limit.", minimum=1
    )
    sync_from_last_file: JavaBoolean = setting(
        False,
        "syncFromLastFile",
        "A replica that has nothing begins with the last file of the master's log, not with the first.",
    )

    slave_read_enable: JavaBoolean = live(
        False,
        "slaveReadEnable",
        "On a master: suggest a replica (`whichBrokerWhenConsumeSlowly` of the group) to consumers that read "
        "messages which are no longer in memory. On a replica: let such consumers stay. A replica without "
        "its master serves all consumers in any case.",
    )

    @property
    def allowed_replicas(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """The networks of `ha_allowed_replicas`."""
        parts = (part.strip() for part in self.ha_allowed_replicas.split(";"))
        return tuple(ipaddress.ip_network(part, strict=False) for part in parts if part)
