"""Settings of automatic failover by Apache's controller."""

from __future__ import annotations

from typing import Final

from rmq_remoting.daemon.settings import (
    JavaBoolean,
    JavaInt,
    JavaString,
    Milliseconds,
    OptionalPath,
    SettingsGroup,
    live,
    setting,
)

_LARGEST_INT: Final = 2**31 - 1


class ControllerSettings(SettingsGroup):
    """Automatic failover"""

    controller_addr: JavaString = setting(
        "",
        "controllerAddr",
        "Addresses of all controllers, each host:port, separated by semicolons.",
    )
    fetch_controller_addr_by_dns_lookup: JavaBoolean = setting(
        False,
        "fetchControllerAddrByDnsLookup",
        "`controllerAddr` is one domain name with a port; the controllers are all its addresses.",
    )
    sync_broker_metadata_period_ms: Milliseconds = live(
        5000,
        "syncBrokerMetadataPeriod",
        "How often the controller is asked who is the master, in case its notification was lost.",
    )
    sync_controller_metadata_period_ms: Milliseconds = live(
        10_000, "syncControllerMetadataPeriod", "How often controllers are asked which of them leads."
    )
    check_sync_state_set_period_ms: Milliseconds = live(
        5000, "checkSyncStateSetPeriod", "How often a master looks for replicas that are no longer in sync."
    )
    controller_heartbeat_timeout_ms: Milliseconds = live(
        10_000,
        "controllerHeartBeatTimeoutMills",
        "Silence after which the controller takes this broker for dead.",
    )
    broker_election_priority: JavaInt = live(
        _LARGEST_INT,
        "brokerElectionPriority",
        "Of brokers with equally long logs, the one with the smallest number is elected.",
    )
    store_path_broker_identity: OptionalPath = setting(
        None,
        "storePathBrokerIdentity",
        "File of the id that the controller gave this broker; empty: `brokerIdentity` in storePathRootDir.",
    )

    @property
    def controller_addresses(self) -> list[str]:
        """The controllers as they are set, each as host:port."""
        return [part.strip() for part in self.controller_addr.split(";") if part.strip()]
