"""The public names of the store: the rest of the broker imports from here alone.

A contract of import-linter in `pyproject.toml` keeps the modules behind it private to the store. A test does
the same for the parts of a `MessageStore`: the rest of the broker uses its methods, and only the parts whose
class is named here (`queues`).
"""

from __future__ import annotations

from .appending.appender import ArrivalListener, Placed, PlacedBatch
from .appending.record_batch import BatchMessages
from .cleaning.cleaner import CleaningStatistics
from .cleaning.disk_space import DiskSpace
from .delay_levels import DelayLevels, level_of_queue, queue_of_level
from .durability import Durability
from .errors import LogBusy, MessageRejected, StoreDamaged, StoreError, StoreUnavailable
from .flushing.group_commit import CommitStatistics
from .index.index_files import KeyQueryResult
from .index.state import IndexState
from .log.mapped_file import file_name, list_files
from .log.record import (
    CRC_PROPERTY_BYTES,
    MAGIC_V2,
    MAX_PROPERTIES_BYTES,
    RECORD_HEADS,
    RecordTemplate,
    pack_host,
    parse_record,
)
from .log.space import LogSpace
from .message_store import MessageStore
from .queues.batch_consume_queue import LARGEST_BATCH, BatchConsumeQueue
from .queues.consume_queue import QUEUE_ENTRY, ConsumeQueue
from .queues.consume_queues import ConsumeQueues
from .queues.entry_file import PLACEHOLDER_SIZE
from .queues.extension import EXT_UNIT, ExtUnit, is_ext_address
from .reading.cold_read import ColdRead
from .reading.log_ranges import ColdData, ColdLog
from .reading.property_filter import PropertyFilter
from .reading.results import GetResult, GetStatus
from .replicas.epochs import Epoch, EpochFile, agreeing_end
from .replicas.in_sync_set import InSyncReplicas
from .replicas.replica_set import ReplicaPosition, ReplicaSet
from .service import StorageService
from .settings import (
    BrokerRole,
    FlushDiskType,
    PullSettings,
    QuerySettings,
    ReplicationSettings,
    StoreSettings,
)

__all__ = [
    "CRC_PROPERTY_BYTES",
    "EXT_UNIT",
    "LARGEST_BATCH",
    "MAGIC_V2",
    "MAX_PROPERTIES_BYTES",
    "PLACEHOLDER_SIZE",
    "QUEUE_ENTRY",
    "RECORD_HEADS",
    "ArrivalListener",
    "BatchConsumeQueue",
    "BatchMessages",
    "BrokerRole",
    "CleaningStatistics",
    "ColdData",
    "ColdLog",
    "ColdRead",
    "CommitStatistics",
    "ConsumeQueue",
    "ConsumeQueues",
    "DelayLevels",
    "DiskSpace",
    "Durability",
    "Epoch",
    "EpochFile",
    "ExtUnit",
    "FlushDiskType",
    "GetResult",
    "GetStatus",
    "InSyncReplicas",
    "IndexState",
    "KeyQueryResult",
    "LogBusy",
    "LogSpace",
    "MessageRejected",
    "MessageStore",
    "Placed",
    "PlacedBatch",
    "PropertyFilter",
    "PullSettings",
    "QuerySettings",
    "RecordTemplate",
    "ReplicaPosition",
    "ReplicaSet",
    "ReplicationSettings",
    "StorageService",
    "StoreDamaged",
    "StoreError",
    "StoreSettings",
    "StoreUnavailable",
    "agreeing_end",
    "file_name",
    "is_ext_address",
    "level_of_queue",
    "list_files",
    "pack_host",
    "parse_record",
    "queue_of_level",
]
