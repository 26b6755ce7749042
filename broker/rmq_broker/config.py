"""The broker's settings: Apache RocketMQ 5.3.3's keys and defaults.

(BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig, and what BrokerStartup makes of
them.) A part of the broker takes the group that it needs, not the whole.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from rmq_remoting.daemon.common_settings import (
    DaemonSettings,
    MetricsSettings,
    ServerSettings,
)
from rmq_remoting.daemon.known_keys import NETWORK_TABLE, KnownKey, read_known_keys
from rmq_remoting.daemon.settings import (
    ByteCount,
    Count,
    FilePath,
    JavaBoolean,
    JavaInt,
    JavaLong,
    JavaString,
    Milliseconds,
    MillisecondsOrZero,
    OptionalPath,
    Percent,
    Port,
    SettingsGroup,
    ThreadCount,
    Unacceptable,
    live,
    setting,
)
from rmq_remoting.host import host_name, local_address

_TABLE = Path(__file__).with_name("apache_settings.tsv")
_CONSUME_QUEUE_ENTRY_BYTES = 20
_BATCH_CONSUME_QUEUE_ENTRY_BYTES = 46


def known_keys() -> Mapping[str, KnownKey]:
    """Every key that Apache's broker knows."""
    return read_known_keys(_TABLE, NETWORK_TABLE)


class BrokerRole(enum.StrEnum):
    """A broker's place in its group (Apache RocketMQ 5.3.3, BrokerRole)."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class FlushDiskType(enum.StrEnum):
    """When a send is answered (Apache RocketMQ 5.3.3, FlushDiskType)."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


def _check_addresses(value: str) -> str:
    for address in filter(None, (part.strip() for part in value.split(";"))):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise Unacceptable(f"host:port, or several separated by semicolons; {address!r} is not one")
    return value


AddressList = Annotated[JavaString, AfterValidator(_check_addresses)]


class IdentitySettings(SettingsGroup):
    """Identity"""

    broker_cluster_name: JavaString = setting(
        "DefaultCluster", "brokerClusterName", "Cluster that the broker belongs to."
    )
    broker_name: JavaString = setting(
        key="brokerName",
        meaning="Name of the broker; a master and its slaves share it.",
        default_factory=host_name,
        default_text="<host name>",
    )
    broker_id: JavaLong = setting(0, "brokerId", "0 for the master, above 0 for a slave.", minimum=0)
    broker_role: BrokerRole = setting(BrokerRole.ASYNC_MASTER, "brokerRole", "Place in the broker's group.")

    def settle(self) -> list[str]:
        """A master's id is 0, whatever was set (BrokerStartup); replication is not there yet."""
        notes = super().settle()
        if self.broker_role is BrokerRole.SLAVE:
            raise ValueError("brokerRole=SLAVE: replication does not exist here yet; use ASYNC_MASTER")
        if self.broker_role is BrokerRole.SYNC_MASTER:
            notes.append(
                "brokerRole=SYNC_MASTER: replication does not exist here yet; sends wait for no slave"
            )
        if self.broker_id != 0:
            notes.append(f"brokerId={self.broker_id} is ignored: a master's id is 0")
            self.broker_id = 0
        return notes


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
        meaning="Address that clients are told to connect to. Set it where that is not the "
        "broker's own: in a container with published ports, behind address translation.",
        default_factory=local_address,
        default_text="<address of the interface that leads outside>",
    )
    broker_ip2: JavaString = setting(
        key="brokerIP2",
        meaning="Address that slaves are told to connect to.",
        default_factory=local_address,
        default_text="<address of the interface that leads outside>",
    )
    register_name_server_period_ms: Milliseconds = live(
        30_000,
        "registerNameServerPeriod",
        "How often the broker registers; taken as 10000 at least and 60000 at most.",
    )
    register_broker_timeout_ms: Milliseconds = live(
        24_000, "registerBrokerTimeoutMills", "How long a name server may take to answer a registration."
    )
    force_register: JavaBoolean = live(
        True,
        "forceRegister",
        "Register every time; otherwise only with name servers that do not have the newest topics.",
    )
    compressed_register: JavaBoolean = live(False, "compressedRegister", "Compress the registration's body.")
    enable_single_topic_register: JavaBoolean = live(
        False, "enableSingleTopicRegister", "Tell name servers of a new topic by itself."
    )
    enable_split_registration: JavaBoolean = live(
        False,
        "enableSplitRegistration",
        "Register in parts. Not together with deleteTopicWithBrokerRegistration of the name server.",
    )
    split_registration_size: Count = live(800, "splitRegistrationSize", "Topics of one part.")
    enable_slave_acting_master: JavaBoolean = setting(
        False,
        "enableSlaveActingMaster",
        "Send heartbeats as well: a dead broker is found out sooner.",
    )
    broker_heartbeat_interval_ms: Milliseconds = setting(
        1000, "brokerHeartbeatInterval", "How often such a heartbeat is sent."
    )
    broker_not_active_timeout_ms: Milliseconds = setting(
        10_000,
        "brokerNotActiveTimeoutMillis",
        "How long name servers wait for such a heartbeat before they drop the broker.",
    )
    compatible_with_old_name_srv: JavaBoolean = live(
        True, "compatibleWithOldNameSrv", "Send them in the form that name servers before 5.0 know, too."
    )
    ready_wait_ms: MillisecondsOrZero = setting(
        3000,
        "readyWaitMillis",
        "How long a start waits for the first registration before it goes on without one.",
        ours=True,
    )

    @property
    def name_server_addresses(self) -> list[str]:
        """The name servers, each as host:port."""
        return [part.strip() for part in self.namesrv_addr.split(";") if part.strip()]

    @property
    def registration_period_ms(self) -> int:
        """The period in force (BrokerController takes it into these bounds)."""
        return max(10_000, min(self.register_name_server_period_ms, 60_000))

    def settle(self) -> list[str]:
        """Notes an address that only this machine can reach."""
        notes = super().settle()
        if self.broker_ip1 == "127.0.0.1" and "broker_ip1" not in self.model_fields_set:
            notes.append("no network found: brokerIP1=127.0.0.1, clients on other machines cannot connect")
        return notes


class TopicSettings(SettingsGroup):
    """Topics and groups"""

    auto_create_topic_enable: JavaBoolean = live(
        True, "autoCreateTopicEnable", "A send to an unknown topic creates it."
    )
    default_topic_queue_nums: Count = setting(
        8, "defaultTopicQueueNums", "Queues of a topic created so, at most."
    )
    auto_create_subscription_group: JavaBoolean = live(
        True, "autoCreateSubscriptionGroup", "An unknown consumer group is created."
    )
    cluster_topic_enable: JavaBoolean = setting(
        True, "clusterTopicEnable", "The topic named after the cluster takes messages."
    )
    broker_topic_enable: JavaBoolean = setting(
        True, "brokerTopicEnable", "The topic named after the broker takes messages."
    )
    broker_permission: JavaInt = live(
        6,
        "brokerPermission",
        "What the whole broker allows: 6 reading and writing, 4 reading, 2 writing.",
        minimum=0,
        maximum=7,
    )
    validate_system_topic_when_update_topic: JavaBoolean = live(
        True, "validateSystemTopicWhenUpdateTopic", "Administration cannot change system topics."
    )
    clear_retry_topic_when_delete_topic: JavaBoolean = live(
        True, "clearRetryTopicWhenDeleteTopic", "Deleting a topic deletes its retry topics."
    )
    trace_topic_enable: JavaBoolean = setting(
        False, "traceTopicEnable", "Create the topic for message traces at start."
    )
    msg_trace_topic_name: JavaString = setting("RMQ_SYS_TRACE_TOPIC", "msgTraceTopicName", "Its name.")
    notify_consumer_ids_changed_enable: JavaBoolean = live(
        True,
        "notifyConsumerIdsChangedEnable",
        "Tell the consumers of a group at once when its members change.",
    )
    channel_expired_timeout_ms: Milliseconds = setting(
        120_000, "channelExpiredTimeout", "A client without a heartbeat for so long is forgotten."
    )
    flush_consumer_offset_interval_ms: Milliseconds = live(
        5000, "flushConsumerOffsetInterval", "How often consumer offsets are written to disk."
    )


class SendSettings(SettingsGroup):
    """Sending"""

    region_id: JavaString = live("DefaultRegion", "regionId", "Region that responses and traces name.")
    trace_on: JavaBoolean = live(True, "traceOn", "Tell clients that messages may be traced.")
    start_accept_send_request_timestamp_ms: JavaLong = live(
        0,
        "startAcceptSendRequestTimeStamp",
        "Time since 1970 before which sends are refused.",
        unit="ms",
        minimum=0,
    )


class PullSettings(SettingsGroup):
    """Pulling"""

    long_polling_enable: JavaBoolean = live(
        True, "longPollingEnable", "Hold a pull that finds nothing for as long as its client asks."
    )
    short_polling_time_ms: MillisecondsOrZero = live(
        1000, "shortPollingTimeMills", "How long such a pull is held where long polling is off."
    )
    long_polling_max_hold_ms: Milliseconds = live(
        30_000,
        "longPollingMaxHoldMillis",
        "How long a pull is held at most, whatever its client asks.",
        ours=True,
    )
    lite_pull_message_enable: JavaBoolean = live(True, "litePullMessageEnable", "Serve lite pull consumers.")
    reject_pull_consumer_enable: JavaBoolean = live(
        False, "rejectPullConsumerEnable", "Serve push consumers only."
    )
    max_transfer_bytes_in_memory: ByteCount = live(
        262_144,
        "maxTransferBytesOnMessageInMemory",
        "Most that one pull gets of messages that are in memory.",
        minimum=1,
    )
    max_transfer_count_in_memory: Count = live(
        32,
        "maxTransferCountOnMessageInMemory",
        "Most that one pull gets of messages that are in memory.",
        unit="messages",
    )
    max_transfer_bytes_on_disk: ByteCount = live(
        65_536,
        "maxTransferBytesOnMessageInDisk",
        "Most that one pull gets of messages that have to be read from disk.",
        minimum=1,
    )
    max_transfer_count_on_disk: Count = live(
        8,
        "maxTransferCountOnMessageInDisk",
        "Most that one pull gets of messages that have to be read from disk.",
        unit="messages",
    )
    access_message_in_memory_max_ratio: Percent = live(
        40,
        "accessMessageInMemoryMaxRatio",
        "Messages within so much of the machine's memory from the end of the log count as in memory.",
    )
    max_filter_message_bytes: JavaInt = live(
        16_000,
        "maxFilterMessageSize",
        "Queue entries that one pull looks through at most while its filter rejects them.",
        unit="bytes of entries",
        minimum=_CONSUME_QUEUE_ENTRY_BYTES,
    )


class QuerySettings(SettingsGroup):
    """Looking messages up"""

    default_query_max_num: Count = live(
        32, "defaultQueryMaxNum", "Messages that a query by unique key gets at most."
    )
    max_msgs_num_batch: Count = live(64, "maxMsgsNumBatch", "Messages that any query by key gets at most.")


class TierSettings(SettingsGroup):
    """Tiers of work

    How many requests may wait in a tier and for how long; more or longer is answered SYSTEM_BUSY.
    """

    broker_fast_failure_enable: JavaBoolean = setting(
        True, "brokerFastFailureEnable", "Refuse requests that have waited too long."
    )
    send_queue_capacity: Count = setting(10_000, "sendThreadPoolQueueCapacity", "Waiting sends.")
    send_max_wait_ms: Milliseconds = setting(200, "waitTimeMillsInSendQueue", "Longest wait of a send.")
    pull_queue_capacity: Count = setting(100_000, "pullThreadPoolQueueCapacity", "Waiting pulls.")
    pull_max_wait_ms: Milliseconds = setting(5000, "waitTimeMillsInPullQueue", "Longest wait of a pull.")
    lite_pull_queue_capacity: Count = setting(
        100_000, "litePullThreadPoolQueueCapacity", "Waiting lite pulls."
    )
    lite_pull_max_wait_ms: Milliseconds = setting(
        5000, "waitTimeMillsInLitePullQueue", "Longest wait of a lite pull."
    )
    pull_cold_threads: ThreadCount = setting(
        4,
        "pullColdThreadPoolNums",
        "Threads for pulls of messages that have to be read from the disk.",
        ours=True,
    )
    pull_cold_queue_capacity: Count = setting(
        10_000, "pullColdThreadPoolQueueCapacity", "Such pulls that wait for a thread.", ours=True
    )
    heartbeat_queue_capacity: Count = setting(
        50_000, "heartbeatThreadPoolQueueCapacity", "Waiting heartbeats."
    )
    heartbeat_max_wait_ms: Milliseconds = setting(
        31_000, "waitTimeMillsInHeartbeatQueue", "Longest wait of a heartbeat."
    )
    client_manager_queue_capacity: Count = setting(
        1_000_000, "clientManagerThreadPoolQueueCapacity", "Waiting requests of clients about themselves."
    )
    consumer_manager_queue_capacity: Count = setting(
        1_000_000, "consumerManagerThreadPoolQueueCapacity", "Waiting requests about groups and offsets."
    )
    query_threads: ThreadCount = setting(
        key="queryMessageThreadPoolNums",
        meaning="Threads for looking messages up.",
        default_factory=lambda: 8 + (os.cpu_count() or 1),
        default_text="8 + cpus",
    )
    query_queue_capacity: Count = setting(
        20_000, "queryThreadPoolQueueCapacity", "Waiting queries; they may wait as long as they like."
    )
    admin_threads: ThreadCount = setting(16, "adminBrokerThreadPoolNums", "Threads for administration.")
    admin_queue_capacity: Count = setting(
        10_000, "adminBrokerThreadPoolQueueCapacity", "Waiting administration."
    )
    admin_max_wait_ms: Milliseconds = setting(
        5000, "waitTimeMillsInAdminBrokerQueue", "Longest wait of administration."
    )


def _check_hours(value: str) -> str:
    for hour in (part.strip() for part in value.split(";")):
        if not (hour.isascii() and hour.isdigit() and int(hour) < 24):
            raise Unacceptable(
                f"hours of the day from 00 to 23, separated by semicolons; {hour!r} is not one"
            )
    return value


HoursOfDay = Annotated[JavaString, AfterValidator(_check_hours)]


class CleaningSettings(SettingsGroup):
    """Deletion of old files

    Shares of a disk are what `df` shows. Files of the commit log are deleted one by one, the oldest first,
    and with them what points into them: entries of queues, index files.
    """

    file_reserved_hours: JavaInt = live(
        72,
        "fileReservedTime",
        "How long a file of the commit log is kept after it was last written to.",
        unit="hours",
        minimum=0,
    )
    delete_when: HoursOfDay = live(
        "04",
        "deleteWhen",
        "Hours of the day, local time, in which files that are too old are deleted: 04;16.",
    )
    disk_max_used_space_ratio: Percent = live(
        75,
        "diskMaxUsedSpaceRatio",
        "With more of the disk in use, files that are too old are deleted whatever the hour.",
        minimum=1,
    )
    disk_space_clean_forcibly_ratio: Percent = live(
        85,
        "diskSpaceCleanForciblyRatio",
        "With more of the disk in use, the oldest files are deleted whatever their age.",
        minimum=1,
    )
    disk_space_warning_level_ratio: Percent = live(
        90,
        "diskSpaceWarningLevelRatio",
        "With more of the disk in use, messages are refused until there is space again; 100: never.",
        minimum=1,
    )
    clean_file_forcibly_enable: JavaBoolean = live(
        True, "cleanFileForciblyEnable", "Off: files are kept for their time, however full the disk is."
    )
    delete_file_batch_max: Count = live(
        10, "deleteFileBatchMax", "Files of the commit log that one round deletes at most.", unit="files"
    )
    clean_resource_interval_ms: Milliseconds = live(
        10_000, "cleanResourceInterval", "Time between two rounds of deleting."
    )
    delete_commit_log_files_interval_ms: MillisecondsOrZero = live(
        100, "deleteCommitLogFilesInterval", "Pause after each deleted file of the commit log."
    )
    delete_consume_queue_files_interval_ms: MillisecondsOrZero = live(
        100, "deleteConsumeQueueFilesInterval", "Pause after each queue that files of were deleted."
    )
    redelete_hanged_file_interval_ms: Milliseconds = live(
        120_000, "redeleteHangedFileInterval", "When a file that could not be deleted is tried again."
    )

    @property
    def delete_hours(self) -> frozenset[int]:
        """The hours of `delete_when`."""
        return frozenset(int(hour) for hour in self.delete_when.split(";"))


class StoreSettings(CleaningSettings):
    """Store"""

    store_path_root_dir: FilePath = setting(
        key="storePathRootDir",
        meaning="Folder of everything that the broker keeps.",
        default_factory=lambda: Path.home() / "store",
        default_text="${user.home}/store",
    )
    store_path_commit_log: OptionalPath = setting(
        None, "storePathCommitLog", "Folder of the commit log; empty: commitlog in storePathRootDir."
    )
    mapped_file_size_commit_log: ByteCount = setting(
        1 << 30, "mappedFileSizeCommitLog", "Size of one commit log file.", minimum=4096
    )
    mapped_file_size_consume_queue: ByteCount = setting(
        6_000_000,
        "mappedFileSizeConsumeQueue",
        "Size of one file of a consume queue, rounded up to whole entries of 20 bytes.",
        minimum=_CONSUME_QUEUE_ENTRY_BYTES,
    )
    mapped_file_size_batch_consume_queue: ByteCount = setting(
        13_800_000,
        "mapperFileSizeBatchConsumeQueue",
        "Size of one file of a queue of batches, rounded up to whole entries of 46 bytes.",
        minimum=_BATCH_CONSUME_QUEUE_ENTRY_BYTES,
    )
    mapped_file_size_consume_queue_ext: ByteCount = setting(
        48 * 1024 * 1024,
        "mappedFileSizeConsumeQueueExt",
        "Size of the files of consumequeue_ext, which are read where another broker wrote some.",
        minimum=4096,
    )
    max_message_size: ByteCount = live(4 << 20, "maxMessageSize", "Largest message body.", minimum=1)
    flush_disk_type: FlushDiskType = setting(
        FlushDiskType.ASYNC_FLUSH,
        "flushDiskType",
        "ASYNC_FLUSH: a send is answered when it is in the system's page cache; SYNC_FLUSH: on disk.",
    )
    flush_interval_commit_log_ms: Milliseconds = live(
        500, "flushIntervalCommitLog", "How often the log is flushed."
    )
    flush_commit_log_least_pages: JavaInt = live(
        4, "flushCommitLogLeastPages", "Less than this is not flushed for itself.", unit="pages", minimum=0
    )
    flush_commit_log_thorough_interval_ms: MillisecondsOrZero = live(
        10_000, "flushCommitLogThoroughInterval", "How often the log is flushed however little is new in it."
    )
    sync_flush_timeout_ms: Milliseconds = live(
        5000,
        "syncFlushTimeout",
        "With SYNC_FLUSH: a send that is not on the disk by then is answered FLUSH_DISK_TIMEOUT.",
    )
    flush_interval_consume_queue_ms: Milliseconds = live(
        1000, "flushIntervalConsumeQueue", "How often consume queues are flushed."
    )
    append_properties_crc: JavaBoolean = setting(
        False,
        "enabledAppendPropCRC",
        "Store a checksum of the whole record with each message, as its property __CRC32#.",
    )
    check_crc_on_recover: JavaBoolean = setting(
        True, "checkCRCOnRecover", "Check the bodies' checksums when the log is recovered."
    )
    message_index_enable: JavaBoolean = setting(
        True, "messageIndexEnable", "Keep an index, by which messages are found by their keys."
    )
    max_hash_slot_num: Count = setting(
        5_000_000, "maxHashSlotNum", "Hash slots of one index file, of 4 bytes each.", unit="slots"
    )
    max_index_num: Count = setting(
        20_000_000,
        "maxIndexNum",
        "Room of one index file: one entry less, of 20 bytes each.",
        unit="entries",
        minimum=2,
    )

    @property
    def commit_log_dir(self) -> Path:
        """Folder of the commit log."""
        return self.store_path_commit_log or self.store_path_root_dir / "commitlog"

    @property
    def consume_queue_dir(self) -> Path:
        """Folder of the consume queues."""
        return self.store_path_root_dir / "consumequeue"

    @property
    def checkpoint_path(self) -> Path:
        """Apache's checkpoint."""
        return self.store_path_root_dir / "checkpoint"

    @property
    def fine_checkpoint_path(self) -> Path:
        """Ours, with offsets in the log."""
        return self.store_path_root_dir / "rmq_checkpoint"

    @property
    def index_dir(self) -> Path:
        """Folder of the index files."""
        return self.store_path_root_dir / "index"

    @property
    def config_dir(self) -> Path:
        """Folder of topics.json, consumerOffset.json and the like."""
        return self.store_path_root_dir / "config"

    @property
    def consume_queue_file_bytes(self) -> int:
        """Size of one file of a consume queue: whole entries."""
        return _rounded_up(self.mapped_file_size_consume_queue, _CONSUME_QUEUE_ENTRY_BYTES)

    @property
    def batch_consume_queue_file_bytes(self) -> int:
        """Size of one file of a queue of batches: whole entries."""
        return _rounded_up(self.mapped_file_size_batch_consume_queue, _BATCH_CONSUME_QUEUE_ENTRY_BYTES)


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


class BrokerSettings(
    IdentitySettings,
    RegistrationSettings,
    TopicSettings,
    SendSettings,
    PullSettings,
    QuerySettings,
    StoreSettings,
    TierSettings,
    ServerSettings,
    MetricsSettings,
    DaemonSettings,
):
    """The broker"""

    listen_port: Port = setting(10911, "listenPort", "Port that clients connect to; 0: any free port.")
    fast_listen_port: JavaInt = setting(
        -1,
        "fastListenPort",
        "Second port for clients' sends; -1: listenPort - 2, where clients look for it; 0: any free port.",
        minimum=-1,
        maximum=65535,
        ours=True,
    )
    ha_listen_port: JavaInt = setting(
        0, "haListenPort", "Port that slaves connect to; 0: listenPort + 1.", minimum=0, maximum=65535
    )
    config_black_list: JavaString = setting(
        "configBlackList;brokerConfigPath",
        "configBlackList",
        "Keys that nobody can change over the network, separated by semicolons.",
    )

    @property
    def protected_keys(self) -> frozenset[str]:
        """Keys that nobody can change over the network, those that never can included."""
        return super().protected_keys | {"brokerConfigPath"}

    def settle(self) -> list[str]:
        """Ports that follow from the listen port (BrokerStartup, BrokerController)."""
        if self.ha_listen_port == 0 and self.listen_port:
            self.ha_listen_port = self.listen_port + 1
        if self.fast_listen_port < 0:
            self.fast_listen_port = max(self.listen_port - 2, 0)
        return super().settle()
