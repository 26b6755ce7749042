"""The store's settings: how it keeps messages, lets them go, and gives them out.

Apache RocketMQ 5.3.3's keys and defaults (MessageStoreConfig, and of BrokerConfig what queries read).
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from rmq_remoting.daemon.settings import (
    ByteCount,
    Count,
    FilePath,
    JavaBoolean,
    JavaInt,
    JavaString,
    Milliseconds,
    MillisecondsOrZero,
    OptionalPath,
    Percent,
    SettingsGroup,
    Unacceptable,
    live,
    setting,
)

from .delay_levels import DEFAULT_DELAY_LEVEL_TEXT, DelayLevels
from .queues.batch_consume_queue import BATCH_ENTRY_BYTES
from .queues.consume_queue import QUEUE_ENTRY_BYTES


class FlushDiskType(enum.StrEnum):
    """When a send is answered (Apache RocketMQ 5.3.3, FlushDiskType)."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class BrokerRole(enum.StrEnum):
    """A broker's role in its replica group (Apache RocketMQ 5.3.3, BrokerRole)."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class ReplicationSettings(SettingsGroup):
    """Replication"""

    broker_role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER,
        "brokerRole",
        "ASYNC_MASTER: replicas follow, sends do not wait for them; SYNC_MASTER: a send is answered when "
        "enough replicas have its message; SLAVE: a replica, which follows the master of its group.",
    )
    total_replicas: Count = setting(
        1, "totalReplicas", "Brokers of the group, the master included; inSyncReplicas cannot be more."
    )
    in_sync_replicas: Count = setting(
        1,
        "inSyncReplicas",
        "How many brokers must have a message before its send is answered, the master included. With "
        "SYNC_MASTER 2 unless set.",
    )
    min_in_sync_replicas: Count = setting(
        1,
        "minInSyncReplicas",
        "With SYNC_MASTER, messages are refused while fewer brokers than this are in sync, the master "
        "included.",
    )
    enable_auto_in_sync_replicas: JavaBoolean = setting(
        False,
        "enableAutoInSyncReplicas",
        "Wait for as many brokers as are in sync, from minInSyncReplicas to inSyncReplicas.",
    )
    ha_max_gap_not_in_sync_bytes: ByteCount = live(
        268_435_456,
        "haMaxGapNotInSync",
        "A replica that lacks this much of the log or more is not in sync.",
        minimum=1,
    )
    slave_timeout_ms: Milliseconds = live(
        3000,
        "slaveTimeout",
        "With SYNC_MASTER, time after which a send whose message too few replicas have is answered "
        "FLUSH_SLAVE_TIMEOUT.",
    )

    enable_controller_mode: JavaBoolean = setting(
        False,
        "enableControllerMode",
        "Join a controller of Apache's, which elects the master of the group. brokerRole and brokerId are "
        "ignored then.",
    )
    all_ack_in_sync_state_set: JavaBoolean = setting(
        False,
        "allAckInSyncStateSet",
        "With enableControllerMode, a send is answered when all brokers of the in-sync set have its message; "
        "inSyncReplicas is ignored. On unless this key or inSyncReplicas is set.",
    )
    async_learner: JavaBoolean = setting(
        False,
        "asyncLearner",
        "With enableControllerMode: follow the master, never join the in-sync set, never become the master.",
    )
    ha_max_time_slave_not_catchup_ms: Milliseconds = live(
        15_000,
        "haMaxTimeSlaveNotCatchup",
        "With enableControllerMode, a replica that lacked part of the log for this long leaves the in-sync "
        "set.",
    )
    store_path_epoch_file: OptionalPath = setting(
        None,
        "storePathEpochFile",
        "File of the master epochs of the log; empty: `epochFileCheckpoint` in storePathRootDir.",
    )

    @property
    def waits_for_in_sync_set(self) -> bool:
        """Whether sends wait for the whole in-sync set; Apache's default waits for nobody."""
        if {"all_ack_in_sync_state_set", "in_sync_replicas"} & self.model_fields_set:
            return self.all_ack_in_sync_state_set
        return True

    @property
    def is_sync_master(self) -> bool:
        """Whether sends wait for replicas."""
        return self.broker_role is BrokerRole.SYNC_MASTER

    @property
    def is_replica(self) -> bool:
        """Whether this broker follows a master."""
        return self.broker_role is BrokerRole.SLAVE

    @property
    def required_replicas(self) -> int:
        """How many brokers must have a message with SYNC_MASTER, the master included.

        Apache's default of `inSyncReplicas` is 1, with which a SYNC_MASTER waits for nobody.
        """
        if "in_sync_replicas" in self.model_fields_set:
            return self.in_sync_replicas
        return max(2, self.min_in_sync_replicas)

    def resolve(self) -> list[str]:
        """Check that the numbers of replicas fit each other and the role. Raises ValueError."""
        notes = super().resolve()
        total, least = self.total_replicas, self.min_in_sync_replicas
        if self.enable_controller_mode:
            return [*notes, *self._resolve_in_sync_set()]
        if self.all_ack_in_sync_state_set or self.async_learner:
            key = "allAckInSyncStateSet" if self.all_ack_in_sync_state_set else "asyncLearner"
            raise ValueError(f"{key}=true needs enableControllerMode=true")
        if not self.is_sync_master:
            for key, number in (("minInSyncReplicas", least), ("inSyncReplicas", self.in_sync_replicas)):
                if number > 1 and not self.is_replica:
                    raise ValueError(
                        f"{key}={number} needs brokerRole=SYNC_MASTER: an ASYNC_MASTER waits for no replica"
                    )
            return notes
        needed = self.required_replicas
        if least > needed:
            raise ValueError(f"minInSyncReplicas={least} is more than inSyncReplicas={needed}")
        if "total_replicas" in self.model_fields_set and needed > total:
            raise ValueError(f"inSyncReplicas={needed} is more than totalReplicas={total}")
        if needed == 1:
            notes.append("inSyncReplicas=1: sends wait for no replica although brokerRole=SYNC_MASTER")
        return notes

    def _resolve_in_sync_set(self) -> list[str]:
        """Check the numbers of replicas with a controller. Raises ValueError."""
        least, total = self.min_in_sync_replicas, self.total_replicas
        if "total_replicas" in self.model_fields_set and least > total:
            raise ValueError(f"minInSyncReplicas={least} is more than totalReplicas={total}")
        if self.waits_for_in_sync_set:
            return []
        needed = self.required_replicas
        if least > needed:
            raise ValueError(f"minInSyncReplicas={least} is more than inSyncReplicas={needed}")
        return [
            f"sends wait for {needed} brokers and not for the whole in-sync set: a failover may lose "
            "messages that were answered SEND_OK. allAckInSyncStateSet=true rules this out"
        ]


class PullSettings(SettingsGroup):
    """Pulling"""

    long_polling_enable: JavaBoolean = live(
        True, "longPollingEnable", "Hold a pull that finds no message for as long as its client asks."
    )
    short_polling_time_ms: MillisecondsOrZero = live(
        1000, "shortPollingTimeMills", "How long such a pull is held while long polling is off."
    )
    long_polling_max_hold_ms: Milliseconds = live(
        30_000,
        "longPollingMaxHoldMillis",
        "Longest time for which a pull is held, whatever its client asks.",
        ours=True,
    )
    max_held_pulls: Count = live(
        100_000,
        "maxHeldPulls",
        "Most held pulls. One connection may have half of them, and a sixteenth once half of them are held. "
        "A pull beyond is answered SYSTEM_BUSY unless there is a message for it.",
        ours=True,
    )
    lite_pull_message_enable: JavaBoolean = live(True, "litePullMessageEnable", "Serve lite pull consumers.")
    reject_pull_consumer_enable: JavaBoolean = live(
        False, "rejectPullConsumerEnable", "Serve push consumers only."
    )
    max_transfer_bytes_in_memory: ByteCount = live(
        262_144,
        "maxTransferBytesOnMessageInMemory",
        "Most bytes that one pull returns of messages in memory.",
        minimum=1,
    )
    max_transfer_count_in_memory: Count = live(
        32,
        "maxTransferCountOnMessageInMemory",
        "Most messages that one pull returns of those in memory.",
        unit="messages",
    )
    max_transfer_bytes_on_disk: ByteCount = live(
        65_536,
        "maxTransferBytesOnMessageInDisk",
        "Most bytes that one pull returns of messages that are read from disk.",
        minimum=1,
    )
    max_transfer_count_on_disk: Count = live(
        8,
        "maxTransferCountOnMessageInDisk",
        "Most messages that one pull returns of those that are read from disk.",
        unit="messages",
    )
    max_transfer_count_in_bulk: Count = live(
        1024,
        "maxTransferCountOnBulkPull",
        "Most messages for a consumer that is catching up: its client accepts (`maxMsgBytes`) more "
        "bytes than `maxTransferBytesOnMessageInMemory`.",
        unit="messages",
        ours=True,
    )
    max_transfer_bytes_in_bulk: ByteCount = live(
        1_048_576,
        "maxTransferBytesOnBulkPull",
        "Most bytes for such a consumer; 0: the limits of all other pulls apply, as with Apache.",
        ours=True,
    )
    access_message_in_memory_max_ratio: Percent = live(
        40,
        "accessMessageInMemoryMaxRatio",
        "Messages within this share of the machine's memory from the end of the log count as in memory.",
    )
    access_message_in_memory_hot_ratio: Percent = live(
        26,
        "accessMessageInMemoryHotRatio",
        "Messages further than this share of the machine's memory from the end of the log may be cold.",
    )
    cold_data_flow_control_enable: JavaBoolean = live(
        False,
        "coldDataFlowControlEnable",
        "Slow groups down that pull more cold messages than their threshold (cgColdReadThreshold).",
    )
    cold_data_scan_enable: JavaBoolean = live(
        False,
        "coldDataScanEnable",
        "Of the messages that may be cold, count only those for which the broker has to read from the disk.",
    )
    data_read_ahead_enable: JavaBoolean = live(
        True,
        "dataReadAheadEnable",
        "After a read from the disk, have the system read the following MiB of the log for the same queue.",
    )
    max_filter_message_bytes: JavaInt = live(
        16_000,
        "maxFilterMessageSize",
        "Most queue entries that one pull scans while its filter rejects them; a filter by tags, "
        "which is searched for in bulk, scans 20 times as many.",
        unit="bytes of entries",
        minimum=QUEUE_ENTRY_BYTES,
    )


class QuerySettings(SettingsGroup):
    """Looking messages up"""

    default_query_max_num: Count = live(
        32, "defaultQueryMaxNum", "Most messages that a query by unique key returns."
    )
    max_msgs_num_batch: Count = live(64, "maxMsgsNumBatch", "Most messages that any query by key returns.")


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
        "How long a commit log file is kept after the last write to it.",
        unit="hours",
        minimum=0,
    )
    delete_when: HoursOfDay = live(
        "04",
        "deleteWhen",
        "Hours of the day, local time, in which expired files are deleted: 04;16.",
    )
    disk_max_used_space_ratio: Percent = live(
        75,
        "diskMaxUsedSpaceRatio",
        "Disk usage above which expired files are deleted at any hour.",
        minimum=1,
    )
    disk_space_clean_forcibly_ratio: Percent = live(
        85,
        "diskSpaceCleanForciblyRatio",
        "Disk usage above which the oldest files are deleted whatever their age.",
        minimum=1,
    )
    disk_space_warning_level_ratio: Percent = live(
        90,
        "diskSpaceWarningLevelRatio",
        "Disk usage above which messages are refused until there is space again; 100: never.",
        minimum=1,
    )
    clean_file_forcibly_enable: JavaBoolean = live(
        True, "cleanFileForciblyEnable", "Off: files are kept until they expire, however full the disk is."
    )
    delete_file_batch_max: Count = live(
        10, "deleteFileBatchMax", "Most commit log files that one round deletes.", unit="files"
    )
    clean_resource_interval_ms: Milliseconds = live(
        10_000, "cleanResourceInterval", "Time between two rounds of deletion."
    )
    delete_commit_log_files_interval_ms: MillisecondsOrZero = live(
        100, "deleteCommitLogFilesInterval", "Pause after each deleted commit log file."
    )
    delete_consume_queue_files_interval_ms: MillisecondsOrZero = live(
        100, "deleteConsumeQueueFilesInterval", "Pause after each queue of which files were deleted."
    )
    redelete_hanged_file_interval_ms: Milliseconds = live(
        120_000, "redeleteHangedFileInterval", "Time after which the deletion of a file is retried."
    )

    @property
    def delete_hours(self) -> frozenset[int]:
        """The hours of `delete_when`."""
        return frozenset(int(hour) for hour in self.delete_when.split(";"))


def _check_delay_levels(value: str) -> str:
    try:
        DelayLevels.parse(value)
    except ValueError as error:
        raise Unacceptable(str(error)) from error
    return value


DelayLevelText = Annotated[JavaString, AfterValidator(_check_delay_levels)]


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
        1 << 30, "mappedFileSizeCommitLog", "Size of a commit log file.", minimum=4096
    )
    mapped_file_size_consume_queue: ByteCount = setting(
        6_000_000,
        "mappedFileSizeConsumeQueue",
        "Size of a consume queue file, rounded up to whole entries of 20 bytes.",
        minimum=QUEUE_ENTRY_BYTES,
    )
    mapped_file_size_batch_consume_queue: ByteCount = setting(
        13_800_000,
        "mapperFileSizeBatchConsumeQueue",
        "Size of a batch consume queue file, rounded up to whole entries of 46 bytes.",
        minimum=BATCH_ENTRY_BYTES,
    )
    enable_consume_queue_ext: JavaBoolean = setting(
        False,
        "enableConsumeQueueExt",
        "Write the bit maps of messages to consumequeue_ext, if enableCalcFilterBitMap is on.",
    )
    mapped_file_size_consume_queue_ext: ByteCount = setting(
        48 * 1024 * 1024,
        "mappedFileSizeConsumeQueueExt",
        "Size of a file of consumequeue_ext; existing files are read whatever their size.",
        minimum=4096,
    )
    max_message_size: ByteCount = live(4 << 20, "maxMessageSize", "Largest message body.", minimum=1)
    flush_disk_type: FlushDiskType = setting(
        FlushDiskType.ASYNC_FLUSH,
        "flushDiskType",
        "ASYNC_FLUSH: a send is answered when its message is in the page cache; SYNC_FLUSH: when it "
        "is flushed to disk.",
    )
    flush_interval_commit_log_ms: Milliseconds = live(
        500, "flushIntervalCommitLog", "Period of the flush of the commit log."
    )
    flush_commit_log_least_pages: JavaInt = live(
        4,
        "flushCommitLogLeastPages",
        "Fewer unflushed pages than this wait for the thorough flush.",
        unit="pages",
        minimum=0,
    )
    flush_commit_log_thorough_interval_ms: MillisecondsOrZero = live(
        10_000,
        "flushCommitLogThoroughInterval",
        "Period in which the commit log is flushed however little is unflushed.",
    )
    sync_flush_timeout_ms: Milliseconds = live(
        5000,
        "syncFlushTimeout",
        "With SYNC_FLUSH, time after which a send whose message is not flushed is answered "
        "FLUSH_DISK_TIMEOUT.",
    )
    flush_interval_consume_queue_ms: Milliseconds = live(
        1000, "flushIntervalConsumeQueue", "Period of the flush of consume queues."
    )
    append_properties_crc: JavaBoolean = setting(
        False,
        "enabledAppendPropCRC",
        "Store a checksum of the whole record with each message, as its property __CRC32#.",
    )
    check_crc_on_recover: JavaBoolean = setting(
        True, "checkCRCOnRecover", "Verify the checksums of bodies during recovery."
    )
    message_index_enable: JavaBoolean = setting(
        True, "messageIndexEnable", "Keep an index of messages by key."
    )
    max_hash_slot_num: Count = setting(
        5_000_000, "maxHashSlotNum", "Hash slots of an index file, of 4 bytes each.", unit="slots"
    )
    max_index_num: Count = setting(
        20_000_000,
        "maxIndexNum",
        "Capacity of an index file: one entry fewer, of 20 bytes each.",
        unit="entries",
        minimum=2,
    )

    message_delay_level: DelayLevelText = setting(
        DEFAULT_DELAY_LEVEL_TEXT,
        "messageDelayLevel",
        "Delays of the delay levels in order, in s, m, h or d.",
    )
    flush_delay_offset_interval_ms: Milliseconds = live(
        10_000,
        "flushDelayOffsetInterval",
        "Period in which the offsets of delivered delayed messages are written to disk.",
    )

    @property
    def delay_levels(self) -> DelayLevels:
        """The delay levels of `message_delay_level`."""
        return DelayLevels.parse(self.message_delay_level)

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
        return _rounded_up(self.mapped_file_size_consume_queue, QUEUE_ENTRY_BYTES)

    @property
    def batch_consume_queue_file_bytes(self) -> int:
        """Size of one file of a queue of batches: whole entries."""
        return _rounded_up(self.mapped_file_size_batch_consume_queue, BATCH_ENTRY_BYTES)


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
