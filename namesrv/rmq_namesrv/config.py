"""The name server's settings: Apache RocketMQ 5.3.3's keys and defaults (NamesrvConfig, NamesrvStartup)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from rmq_remoting.daemon.access.settings import ACCESS_TABLE, AccessSettings
from rmq_remoting.daemon.common_settings import DaemonSettings, MetricsSettings, ServerSettings
from rmq_remoting.daemon.known_keys import NETWORK_TABLE, KnownKey, read_known_keys
from rmq_remoting.daemon.settings import (
    Count,
    FilePath,
    JavaBoolean,
    JavaString,
    Milliseconds,
    OptionalPath,
    Port,
    SecondsOrZero,
    SettingsGroup,
    ThreadCount,
    live,
    setting,
)
from rmq_remoting.daemon.tls_settings import TlsSettings
from rmq_remoting.daemon.unsupported_settings import METRICS, TRUE, UnsupportedSetting

_TABLE = Path(__file__).with_name("apache_settings.tsv")

_CONTROLLER: Final = (
    UnsupportedSetting(
        "enableControllerInNamesrv",
        TRUE,
        "the controller",
        "remove the key and run Apache's controller by itself for the brokers that need one",
    ),
)


_MIGRATION: Final = (
    UnsupportedSetting(
        "migrateAuthFromV1Enabled",
        TRUE,
        "migration of access control of version 1 in the name server",
        "remove the key, and copy users from a broker (`mqadmin copyUser`, `copyAcl`)",
    ),
)


def known_keys() -> Mapping[str, KnownKey]:
    """Return every key of Apache's name server, and of its access control, which only its broker has."""
    return read_known_keys(_TABLE, ACCESS_TABLE, NETWORK_TABLE)


class RouteSettings(SettingsGroup):
    """Routes and brokers"""

    scan_not_active_broker_interval_ms: Milliseconds = setting(
        5000,
        "scanNotActiveBrokerInterval",
        "Interval of the search for brokers whose heartbeats have stopped.",
    )
    unregister_broker_queue_capacity: Count = setting(
        3000, "unRegisterBrokerQueueCapacity", "Bound of waiting registrations and unregistrations."
    )
    order_message_enable: JavaBoolean = live(
        False, "orderMessageEnable", "Send the configuration of order topics with routes."
    )
    return_order_topic_config_to_broker: JavaBoolean = live(
        True,
        "returnOrderTopicConfigToBroker",
        "Send the configuration of order topics in the response to a broker's registration.",
    )
    delete_topic_with_broker_registration: JavaBoolean = live(
        False,
        "deleteTopicWithBrokerRegistration",
        "Delete those topics of a broker that its registration no longer lists. Use it only if the brokers "
        "have enableSingleTopicRegister on: otherwise new topics temporarily lose their routes.",
    )
    support_acting_master: JavaBoolean = live(
        False,
        "supportActingMaster",
        "Announce a slave as master, for reading, while its master is down.",
    )
    notify_min_broker_id_changed: JavaBoolean = live(
        False,
        "notifyMinBrokerIdChanged",
        "Notify the brokers of one name when the smallest live broker id among them changes.",
    )
    enable_topic_list: JavaBoolean = live(
        True, "enableTopicList", "Answer requests for lists of system and unit topics."
    )
    enable_all_topic_list: JavaBoolean = live(
        True, "enableAllTopicList", "Answer requests for the list of all topics."
    )
    need_wait_for_service: JavaBoolean = live(
        False,
        "needWaitForService",
        "Refuse route requests for waitSecondsForService after a start, until all brokers have registered.",
    )
    wait_seconds_for_service: SecondsOrZero = live(
        45, "waitSecondsForService", "Duration of that refusal after a start."
    )


class NamesrvPoolSettings(SettingsGroup):
    """Tiers of requests"""

    client_request_queue_capacity: Count = setting(
        50000,
        "clientRequestThreadPoolQueueCapacity",
        "Bound of waiting route requests of clients; more are answered SYSTEM_BUSY.",
    )
    default_threads: ThreadCount = setting(
        16, "defaultThreadPoolNums", "Threads for requests that may block."
    )
    default_queue_capacity: Count = setting(
        10000,
        "defaultThreadPoolQueueCapacity",
        "Bound of waiting requests of brokers and operators; more are answered SYSTEM_BUSY.",
    )


class NamesrvSettings(
    RouteSettings,
    NamesrvPoolSettings,
    ServerSettings,
    TlsSettings,
    AccessSettings,
    MetricsSettings,
    DaemonSettings,
):
    """The name server"""

    unsupported: ClassVar = (*METRICS, *_CONTROLLER, *_MIGRATION)

    listen_port: Port = setting(
        9876, "listenPort", "Port that brokers and clients connect to; 0: any free port."
    )
    kv_config_path: FilePath = setting(
        key="kvConfigPath",
        meaning="File of the key-value configuration.",
        default_factory=lambda: Path.home() / "namesrv" / "kvConfig.json",
        default_text="${user.home}/namesrv/kvConfig.json",
    )
    auth_config_path: OptionalPath = setting(
        None,
        "authConfigPath",
        "Folder of `users.json` and `acls.json`; empty: the folder of kvConfigPath.",
    )
    config_black_list: JavaString = setting(
        "configBlackList;configStorePath;kvConfigPath",
        "configBlackList",
        "Keys that cannot be changed over the network, separated by semicolons.",
    )

    @property
    def access_folder(self) -> Path:
        """The folder of users and rules."""
        return self.auth_config_path or self.kv_config_path.parent

    @property
    def protected_keys(self) -> frozenset[str]:
        """Keys that cannot be changed over the network, including those that never can."""
        return super().protected_keys | {"configStorePath", "kvConfigPath"}
