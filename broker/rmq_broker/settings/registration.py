"""Settings of the broker's identity, its addresses and its name servers."""

from __future__ import annotations

import os
import re
from typing import Annotated, Final

from pydantic import AfterValidator

from rmq_remoting.daemon.settings import (
    Count,
    JavaBoolean,
    JavaLong,
    JavaString,
    Milliseconds,
    MillisecondsOrZero,
    SettingsGroup,
    Unacceptable,
    live,
    setting,
)
from rmq_remoting.host import host_name, local_address

_NOT_IN_NAMES: Final = re.compile(r"[\x00-\x20\x7f]")


def _check_addresses(value: str) -> str:
    for address in filter(None, (part.strip() for part in value.split(";"))):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise Unacceptable(f"host:port, or several separated by semicolons; {address!r} is not one")
    return value


def _check_name(value: str) -> str:
    if _NOT_IN_NAMES.search(value):
        raise Unacceptable(
            "a name without spaces and control characters: a space ends the name in the receipts of popped "
            "messages and in recall handles"
        )
    return value


AddressList = Annotated[JavaString, AfterValidator(_check_addresses)]
BrokerName = Annotated[JavaString, AfterValidator(_check_name)]


class IdentitySettings(SettingsGroup):
    """Identity"""

    broker_cluster_name: JavaString = setting(
        "DefaultCluster", "brokerClusterName", "Cluster that the broker belongs to."
    )
    broker_name: BrokerName = setting(
        key="brokerName",
        meaning="Name of the broker, without spaces; a master and its slaves share it.",
        default_factory=host_name,
        default_text="<host name>",
    )
    broker_id: JavaLong = setting(0, "brokerId", "0 for a master, above 0 for a slave.", minimum=0)


class RegistrationSettings(SettingsGroup):
    """Addresses and name servers"""

    namesrv_addr: AddressList = setting(
        key="namesrvAddr",
        meaning="Name servers to register with, host:port, separated by semicolons.",
        default_factory=lambda: os.environ.get("NAMESRV_ADDR", ""),
        default_text="${NAMESRV_ADDR}",
    )
    broker_ip1: JavaString = setting(
        key="brokerIP1",
        meaning="Address that clients are told to connect to. Set it where that is not an address of this "
        "machine: in a container with published ports, or behind address translation.",
        default_factory=local_address,
        default_text="<address of the interface that leads outside>",
    )
    broker_ip2: JavaString = setting(
        key="brokerIP2",
        meaning="Address that replicas are told to connect to.",
        default_factory=local_address,
        default_text="<address of the interface that leads outside>",
    )
    register_name_server_period_ms: Milliseconds = live(
        30_000,
        "registerNameServerPeriod",
        "Period of the registration; values outside 10000 to 60000 count as the nearest bound.",
    )
    register_broker_timeout_ms: Milliseconds = live(
        24_000, "registerBrokerTimeoutMills", "Time-out of a registration."
    )
    force_register: JavaBoolean = live(
        True,
        "forceRegister",
        "Register in every period; off: only with name servers whose topics are not the newest.",
    )
    compressed_register: JavaBoolean = live(
        False, "compressedRegister", "Compress the body of a registration."
    )
    enable_single_topic_register: JavaBoolean = live(
        False, "enableSingleTopicRegister", "Announce a new topic by a request of its own."
    )
    enable_split_registration: JavaBoolean = live(
        False,
        "enableSplitRegistration",
        "Register in parts. Do not combine it with the name server's deleteTopicWithBrokerRegistration.",
    )
    split_registration_size: Count = live(800, "splitRegistrationSize", "Topics in one part.")
    enable_slave_acting_master: JavaBoolean = setting(
        False,
        "enableSlaveActingMaster",
        "Let the replica with the smallest broker id act as the master while its master is away. All brokers "
        "of a group need the setting, and its name servers supportActingMaster. Brokers send heartbeats "
        "besides registrations then, so that name servers detect a dead broker sooner.",
    )
    broker_heartbeat_interval_ms: Milliseconds = setting(
        1000, "brokerHeartbeatInterval", "Period of these heartbeats."
    )
    broker_not_active_timeout_ms: Milliseconds = setting(
        10_000,
        "brokerNotActiveTimeoutMillis",
        "Time without such a heartbeat after which name servers drop the broker.",
    )
    compatible_with_old_name_srv: JavaBoolean = live(
        True,
        "compatibleWithOldNameSrv",
        "Send these heartbeats in the form that name servers before 5.0 understand, too.",
    )
    ready_wait_ms: MillisecondsOrZero = setting(
        3000,
        "readyWaitMillis",
        "Longest wait of the start for the first registration; then the broker serves without one.",
        ours=True,
    )

    @property
    def name_server_addresses(self) -> list[str]:
        """The name servers, each as host:port."""
        return [part.strip() for part in self.namesrv_addr.split(";") if part.strip()]

    @property
    def registration_period_ms(self) -> int:
        """The period within its bounds (Apache RocketMQ 5.3.3, BrokerController)."""
        return max(10_000, min(self.register_name_server_period_ms, 60_000))

    def resolve(self) -> list[str]:
        """Note an address that only this machine can reach."""
        notes = super().resolve()
        if self.broker_ip1 == "127.0.0.1" and "broker_ip1" not in self.model_fields_set:
            notes.append("no network found: brokerIP1=127.0.0.1, clients on other machines cannot connect")
        return notes
