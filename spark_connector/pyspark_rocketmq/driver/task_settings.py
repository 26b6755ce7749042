"""What executors need to know about a query, derived from its options."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ..limits import MAX_CHUNK_BYTES
from ..options import ReadOptions
from ..tasks.partitions import ConnectionKey, FetchSettings, TaskSettings

# A batch exceeds its bound by at most one answer, which is one frame of 16 MiB at most.
_MAX_BATCH_BYTES: Final = MAX_CHUNK_BYTES - 16 * 1024 * 1024


def task_settings(options: ReadOptions, schema: pa.Schema) -> TaskSettings:
    """Return the settings of tasks. `schema`: the Arrow schema that Spark expects."""
    return TaskSettings(
        ConnectionKey(options.name_servers, options.group, options.client_settings),
        FetchSettings(
            expression=options.expression,
            expression_type=options.sub_expression_type,
            pull_max_messages=options.pull_batch_size,
            pull_max_bytes=options.pull_max_bytes,
            pulls_in_flight=options.pulls_in_flight,
            batch_messages=options.batch_messages,
            batch_bytes=min(options.batch_bytes, _MAX_BATCH_BYTES),
            unavailable_timeout_seconds=options.broker_timeout_ms / 1000,
            fail_on_data_loss=options.fail_on_data_loss,
        ),
        schema,
        options.properties_mode,
        options.check_crc,
        options.include_decompressed,
        options.tune_workers,
    )
