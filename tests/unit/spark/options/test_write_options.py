"""Options of writing: defaults, values and rejected combinations."""

from __future__ import annotations

import pickle

import pytest

from pyspark_rocketmq.errors import OptionError, UnknownOption
from pyspark_rocketmq.options import WriteOptions
from pyspark_rocketmq.options.write_options import DEFAULT_GROUP
from rmq_remoting.compression import CompressionType

from .samples import NAME_SERVERS, write


def test_defaults() -> None:
    options = WriteOptions.for_stream({**NAME_SERVERS, "checkpointlocation": "/c", "queryname": "q"})
    assert options == write()
    assert options.topic is None
    assert options.group == DEFAULT_GROUP
    assert options.compression is None
    assert options.dead_letter_topic is None


def test_given_values() -> None:
    options = write(topic="alerts", compression="lz4", deadLetterTopic="dead", deadLetterPath=" /dead ")
    assert options.topic == "alerts"
    assert options.compression is CompressionType.LZ4
    assert (options.dead_letter_topic, options.dead_letter_path) == ("dead", "/dead")
    assert pickle.loads(pickle.dumps(options)) == options


def test_name_servers_are_required() -> None:
    with pytest.raises(OptionError, match=r"rocketmq\.namesrv\.addr is not given"):
        WriteOptions.for_batch({"topic": "alerts"})


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("sendBatchSise", "did you mean sendBatchSize"),
        ("subscribe", "options for writing are brokerTimeout, "),
        ("kafka.compression.type", "the name here is compression"),
    ],
)
def test_unknown_option_is_rejected(name: str, advice: str) -> None:
    with pytest.raises(UnknownOption, match=advice):
        WriteOptions.for_batch({**NAME_SERVERS, name: "x"})


def test_dead_letter_topic_must_differ_from_the_target() -> None:
    with pytest.raises(OptionError, match="deadLetterTopic is 'alerts': it must be another topic than topic"):
        write(topic="alerts", deadLetterTopic="alerts")
