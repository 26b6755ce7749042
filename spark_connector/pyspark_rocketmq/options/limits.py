"""Limits on the size of micro-batches and tasks, in offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_MAX_DELAY_MS: Final = 15 * 60 * 1000
DEFAULT_PACK_RECORDS: Final = 10_000

# Spark's scheduler fails long before a plan of more tasks becomes a problem here.
MAX_TASKS: Final = 100_000


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """What one micro-batch may take, in offsets.

    At most `max_offsets`; nothing while there are fewer than `min_offsets`, unless the last batch is
    `max_delay_ms` ago.
    """

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = DEFAULT_MAX_DELAY_MS


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """How ranges become tasks.

    `min_partitions`: at least so many tasks, where there are so many offsets. `max_records_per_partition`:
    none has more. `pack_below_records`: queues with less share a task, up to that many; 0 for a task each.
    """

    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    pack_below_records: int = DEFAULT_PACK_RECORDS
