"""Entry point of the connector: the data source that Spark asks for schemas, readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from .batch_reader import BatchReader
    from .columns import ColumnsPreset, PropertiesMode
    from .stream_reader import StreamReader


class RocketMQDataSource(DataSource):
    """RocketMQ as a source and a sink of Spark. `options/` declares the options.

    Every Spark session imports this module while it searches for data sources. The parts are therefore
    imported only when Spark asks for them: a query that only reads does not load the sink.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that `format("rocketmq")` uses."""
        return "rocketmq"

    def schema(self) -> StructType:
        """Return the schema of the preset `columns`. A schema given by the user selects and orders columns.

        Raises SchemaError.
        """
        from .columns import spark_schema  # noqa: PLC0415

        mode = self.options.get("propertiesMode", "map").strip().lower()
        preset = self.options.get("columns", "all").strip().lower()
        return spark_schema(cast("PropertiesMode", mode), cast("ColumnsPreset", preset))

    def reader(self, schema: StructType) -> BatchReader:
        """Return a reader for a batch read. Raises OptionError, SchemaError."""
        from .batch_reader import BatchReader, FilteringBatchReader  # noqa: PLC0415
        from .columns import arrow_schema_of  # noqa: PLC0415
        from .options import ReadOptions  # noqa: PLC0415

        options = ReadOptions.for_batch(self.options)
        kind = FilteringBatchReader if options.push_down_filters else BatchReader
        return kind(options, arrow_schema_of(schema, options.properties_mode))

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return a reader for a streaming read. Raises OptionError, SchemaError."""
        from .columns import arrow_schema_of  # noqa: PLC0415
        from .options import ReadOptions  # noqa: PLC0415
        from .stream_reader import StreamReader  # noqa: PLC0415

        options = ReadOptions.for_stream(self.options)
        return StreamReader(options, arrow_schema_of(schema, options.properties_mode))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Return a writer for a batch write. Raises OptionError, SchemaError, ConnectorError."""
        from .options import WriteOptions  # noqa: PLC0415
        from .sink import batch_writer  # noqa: PLC0415

        return batch_writer(schema, WriteOptions.for_batch(self.options), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Return a writer for a streaming write. Raises OptionError, SchemaError, ConnectorError."""
        from .options import WriteOptions  # noqa: PLC0415
        from .sink import stream_writer  # noqa: PLC0415

        return stream_writer(schema, WriteOptions.for_stream(self.options), overwrite)
