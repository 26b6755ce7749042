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
    """Limits of one micro-batch, in offsets.

    A batch has at most `max_offsets`. It waits for `min_offsets`, but at most `max_delay_ms` after the last
    batch.
    """

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = DEFAULT_MAX_DELAY_MS


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Limits of tasks, in offsets.

    `min_partitions`: the minimum number of tasks, if there are as many offsets. `max_records_per_partition`:
    the maximum of one task. `pack_below_records`: queues with less share a task of up to this size; 0 gives
    each queue its own task. `cores`: sharing leaves at least this number of tasks, if there are as many
    queues.
    """

    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    pack_below_records: int = DEFAULT_PACK_RECORDS
    cores: int = 1
