"""The public names of the store: the rest of the broker imports from here alone.

A contract of import-linter in `pyproject.toml` keeps the modules behind it private to the store.
"""

from __future__ import annotations

from .append import Arrival, Placed, PlacedBatch
from .checkpoint import Checkpoint
from .cleanup import Cleaner, CleaningStatistics
from .delay_levels import DEFAULT_DELAY_LEVEL_TEXT, DelayLevels, level_of_queue, queue_of_level
from .disk_space import DiskLevel, DiskSpace
from .errors import MessageRejected, StoreDamaged, StoreError, StoreUnavailable
from .group_commit import CommitStatistics, Durability
from .index.index_files import IndexAnswer
from .index.message_index import IndexState
from .judging import BitMapOf
from .log.commit_log import CommitLog
from .log.mapped_file import file_name, list_files
from .log.reading import Backlogs, ColdData, ColdLog
from .log.record import (
    CRC_PROPERTY_BYTES,
    MAGIC_V2,
    MAX_PROPERTIES_BYTES,
    RECORD_HEADS,
    RecordTemplate,
    pack_host,
    parse_record,
    properties_of,
)
from .log.record_batch import BatchMessages
from .message_store import MessageStore
from .property_filter import PropertyFilter
from .queues.batch_consume_queue import LARGEST_BATCH, BatchConsumeQueue
from .queues.consume_queue import PLACEHOLDER_SIZE, QUEUE_ENTRY, ConsumeQueue
from .queues.extension import EXT_UNIT, ExtUnit, is_ext_address
from .reader import ColdRead, GetResult, GetStatus, Reader
from .recovery import StopKind
from .settings import (
    CleaningSettings,
    FlushDiskType,
    PullSettings,
    QuerySettings,
    StoreSettings,
)

__all__ = [
    "CRC_PROPERTY_BYTES",
    "DEFAULT_DELAY_LEVEL_TEXT",
    "EXT_UNIT",
    "LARGEST_BATCH",
    "MAGIC_V2",
    "MAX_PROPERTIES_BYTES",
    "PLACEHOLDER_SIZE",
    "QUEUE_ENTRY",
    "RECORD_HEADS",
    "Arrival",
    "Backlogs",
    "BatchConsumeQueue",
    "BatchMessages",
    "BitMapOf",
    "Checkpoint",
    "Cleaner",
    "CleaningSettings",
    "CleaningStatistics",
    "ColdData",
    "ColdLog",
    "ColdRead",
    "CommitLog",
    "CommitStatistics",
    "ConsumeQueue",
    "DelayLevels",
    "DiskLevel",
    "DiskSpace",
    "Durability",
    "ExtUnit",
    "FlushDiskType",
    "GetResult",
    "GetStatus",
    "IndexAnswer",
    "IndexState",
    "MessageRejected",
    "MessageStore",
    "Placed",
    "PlacedBatch",
    "PropertyFilter",
    "PullSettings",
    "QuerySettings",
    "Reader",
    "RecordTemplate",
    "StopKind",
    "StoreDamaged",
    "StoreError",
    "StoreSettings",
    "StoreUnavailable",
    "file_name",
    "is_ext_address",
    "level_of_queue",
    "list_files",
    "pack_host",
    "parse_record",
    "properties_of",
    "queue_of_level",
]
