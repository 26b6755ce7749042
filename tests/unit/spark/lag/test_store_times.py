"""Store times: parsed from stored messages, and brokers that do not answer."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given

from pyspark_rocketmq.lag.store_times import StoreTimes, store_time
from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.options import ReadOptions
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import encode_stored_message
from tests.support.ports import LOOPBACK, free_port
from tests.support.waiting import until_in_thread
from tests.unit.remoting.message_samples import messages

QUEUE = QueueKey("T", "a", 0)


@given(messages)
def test_store_time_of_any_message(message: MessageExt) -> None:
    assert store_time(encode_stored_message(message)) == message.store_timestamp / 1000


def test_unreachable_broker_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    address = f"{LOOPBACK}:{free_port()}"
    times = StoreTimes(
        ReadOptions.for_stream(
            {"rocketmq.namesrv.addr": address, "subscribe": "T", "rocketmq.requestTimeout": "100ms"}
        )
    )

    def on_store_time(queue: QueueKey, offset: int, at: float) -> None:
        raise AssertionError("nobody can have answered")

    try:
        with caplog.at_level(logging.WARNING, "pyspark_rocketmq.lag.store_times"):
            assert times.request([(QUEUE, 0)], on_store_time)
            # The next round starts only when the previous one has ended.
            until_in_thread(lambda: times.request([(QUEUE, 1)], on_store_time))
            until_in_thread(lambda: times.request([], on_store_time))
    finally:
        times.close()
    (record,) = [record for record in caplog.records if record.name == "pyspark_rocketmq.lag.store_times"]
    assert address in record.getMessage()
