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
from .queues.batch_consume_queue import UNIT_BYTES
from .queues.consume_queue import QUEUE_ENTRY_BYTES


class FlushDiskType(enum.StrEnum):
    """When a send is answered (Apache RocketMQ 5.3.3, FlushDiskType)."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


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
    max_transfer_count_in_bulk: Count = live(
        1024,
        "maxTransferCountOnBulkPull",
        "Most that a pull gets whose client says (`maxMsgBytes`) that it takes more bytes than "
        "`maxTransferBytesOnMessageInMemory`: one that reads through a queue.",
        unit="messages",
        ours=True,
    )
    max_transfer_bytes_in_bulk: ByteCount = live(
        1_048_576,
        "maxTransferBytesOnBulkPull",
        "Most that such a pull gets; 0: it has the limits of all others, as with Apache.",
        ours=True,
    )
    access_message_in_memory_max_ratio: Percent = live(
        40,
        "accessMessageInMemoryMaxRatio",
        "Messages within so much of the machine's memory from the end of the log count as in memory.",
    )
    max_filter_message_bytes: JavaInt = live(
        16_000,
        "maxFilterMessageSize",
        "Queue entries that one pull looks through at most while its filter rejects them; by tags, which are "
        "searched for in bulk, 20 times as many.",
        unit="bytes of entries",
        minimum=QUEUE_ENTRY_BYTES,
    )


class QuerySettings(SettingsGroup):
    """Looking messages up"""

    default_query_max_num: Count = live(
        32, "defaultQueryMaxNum", "Messages that a query by unique key gets at most."
    )
    max_msgs_num_batch: Count = live(64, "maxMsgsNumBatch", "Messages that any query by key gets at most.")


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
        1 << 30, "mappedFileSizeCommitLog", "Size of one commit log file.", minimum=4096
    )
    mapped_file_size_consume_queue: ByteCount = setting(
        6_000_000,
        "mappedFileSizeConsumeQueue",
        "Size of one file of a consume queue, rounded up to whole entries of 20 bytes.",
        minimum=QUEUE_ENTRY_BYTES,
    )
    mapped_file_size_batch_consume_queue: ByteCount = setting(
        13_800_000,
        "mapperFileSizeBatchConsumeQueue",
        "Size of one file of a queue of batches, rounded up to whole entries of 46 bytes.",
        minimum=UNIT_BYTES,
    )
    enable_consume_queue_ext: JavaBoolean = setting(
        False,
        "enableConsumeQueueExt",
        "Write bit maps of messages into consumequeue_ext, where enableCalcFilterBitMap is on.",
    )
    mapped_file_size_consume_queue_ext: ByteCount = setting(
        48 * 1024 * 1024,
        "mappedFileSizeConsumeQueueExt",
        "Size of the files of consumequeue_ext; what is there is always read.",
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

    message_delay_level: DelayLevelText = setting(
        DEFAULT_DELAY_LEVEL_TEXT,
        "messageDelayLevel",
        "How long delayed messages wait, level by level: s, m, h, d.",
    )
    flush_delay_offset_interval_ms: Milliseconds = live(
        10_000,
        "flushDelayOffsetInterval",
        "How often it is written to disk which delayed messages have been delivered.",
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
        return _rounded_up(self.mapped_file_size_batch_consume_queue, UNIT_BYTES)


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
