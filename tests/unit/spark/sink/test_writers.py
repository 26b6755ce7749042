"""The interface of the sink: checks on the driver, and the writers that Spark gets."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pyspark_rocketmq import sink
from pyspark_rocketmq.errors import OptionError, SchemaError
from pyspark_rocketmq.options import WriteOptions
from pyspark_rocketmq.sink.settings import NEVER_BYTES, sink_settings
from pyspark_rocketmq.sink.writers import SinkCommit
from pyspark_rocketmq.spark_versions import DataSourceStreamArrowWriter
from rmq_client import CompressionType
from tests.spark.version_marks import needs_stream_sink

_SCHEMA = StructType([StructField("body", BinaryType())])


def _options(**options: str) -> WriteOptions:
    return WriteOptions.for_batch({"rocketmq.namesrv.addr": "127.0.0.1:9876", **options})


@needs_stream_sink
def test_writers_take_arrow_batches_and_survive_pickling() -> None:
    batch = sink.batch_writer(_SCHEMA, _options(topic="T"), overwrite=False)
    stream = sink.stream_writer(_SCHEMA, _options(topic="T"), overwrite=True)
    assert isinstance(batch, DataSourceArrowWriter)
    assert isinstance(stream, DataSourceStreamArrowWriter)
    for writer in (batch, stream):
        assert len(pickle.dumps(writer)) < 10_000


def test_overwrite_mode_is_rejected() -> None:
    with pytest.raises(OptionError, match="option mode is 'overwrite': it must be append"):
        sink.batch_writer(_SCHEMA, _options(topic="T"), overwrite=True)


@needs_stream_sink
def test_schema_and_path_are_checked_on_creation() -> None:
    with pytest.raises(SchemaError, match="no topic"):
        sink.stream_writer(_SCHEMA, _options(), overwrite=False)
    with pytest.raises(OptionError, match="deadLetterPath"):
        sink.batch_writer(_SCHEMA, _options(topic="T", deadLetterPath="here"), overwrite=False)
    with pytest.raises(SchemaError, match="'text' is unknown"):
        sink.batch_writer(
            StructType([StructField("text", StringType())]), _options(topic="T"), overwrite=False
        )


def test_options_become_settings() -> None:
    found = sink_settings(
        _options(
            topic="T",
            groupId="writers",
            sendBatchSize="10",
            sendBatchBytes="2048",
            maxInFlight="3",
            compression="zstd",
            compressFromBytes="100",
            sendTimeout="1500ms",
            brokerTimeout="1m",
            topicTimeout="2s",
            deadLetterTopic="DEAD",
            deadLetterPath="/dead",
        )
    )
    assert (found.topic, found.group, found.name_servers) == ("T", "writers", "127.0.0.1:9876")
    assert (found.batch_rows, found.batch_bytes, found.max_in_flight) == (10, 2048, 3)
    assert (found.compression, found.compress_from_bytes) == (CompressionType.ZSTD, 100)
    assert found.request_timeout_seconds == 1.5
    assert (found.broker_timeout_seconds, found.topic_timeout_seconds) == (60.0, 2.0)
    assert (found.dead_letter_topic, found.dead_letter_path) == ("DEAD", "/dead")
    assert sink_settings(_options(topic="T")).compress_from_bytes == NEVER_BYTES


def test_each_write_has_a_unique_id() -> None:
    writers = [sink.batch_writer(_SCHEMA, _options(topic="T"), overwrite=False) for _ in range(2)]
    assert len({writer._write_id for writer in writers}) == 2


@needs_stream_sink
def test_rejected_rows_are_logged_on_the_driver(caplog: pytest.LogCaptureFixture) -> None:
    writer = sink.stream_writer(_SCHEMA, _options(topic="T"), overwrite=False)
    with caplog.at_level("WARNING"):
        writer.commit([SinkCommit(10, 0), None], 4)
        assert not caplog.records
        writer.commit([SinkCommit(10, 1), SinkCommit(5, 2)], 5)
        writer.abort([SinkCommit(10, 1), None], 6)
    assert "rows rejected, kept as dead letters micro-batch=5 rejected=3 rows=15" in caplog.text
    assert "write failed, messages sent stay in the topics micro-batch=6" in caplog.text
