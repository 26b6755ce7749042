"""The sink: writes rows of a DataFrame or of a stream as messages. These two functions are its interface.

Both run on the driver and check as much as can be checked there. Delivery is at least once: a failed attempt
of a task leaves the messages that it sent, and the next attempt sends them again under the same row ids
(`row_ids`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ConnectorError, OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..options.write_options import WriteOptions

__all__ = ["batch_writer", "stream_writer"]


def batch_writer(schema: StructType, options: WriteOptions, overwrite: bool) -> Any:
    """Return the `DataSourceArrowWriter` of a DataFrame. Raises SchemaError, OptionError, ConnectorError."""
    if overwrite:
        raise OptionError("mode", "overwrite", "append", "messages of a topic cannot be replaced")
    from .writers import BatchWriter  # noqa: PLC0415

    return BatchWriter(*_checked(schema, options))


def stream_writer(schema: StructType, options: WriteOptions, overwrite: bool) -> Any:
    """Return the `DataSourceStreamArrowWriter` of a streaming query. Raises SchemaError, ConnectorError.

    Spark sets `overwrite` for output mode complete: every micro-batch then sends the whole result again, as
    with Spark's Kafka sink.
    """
    from ..spark_versions import HAS_ARROW_STREAM_WRITER, VERSION  # noqa: PLC0415
    from .writers import StreamWriter  # noqa: PLC0415

    del overwrite
    if not HAS_ARROW_STREAM_WRITER:
        raise ConnectorError(
            f"a streaming sink needs PySpark 4.1 or later, and this is {VERSION}: use "
            'foreachBatch, and in it batch.write.format("rocketmq")'
        )
    return StreamWriter(*_checked(schema, options))


def _checked(schema: StructType, options: WriteOptions) -> tuple[Any, Any]:
    from .schema import sink_columns  # noqa: PLC0415  # imports Spark's types
    from .settings import sink_settings  # noqa: PLC0415

    settings = sink_settings(options)
    if settings.dead_letter_path is not None:
        from .dead_letters import check_folder  # noqa: PLC0415  # imports Arrow

        check_folder(settings.dead_letter_path)
    return sink_columns(schema, settings.topic), settings
