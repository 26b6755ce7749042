"""Reading of a broker's runtime information."""

from __future__ import annotations

from datetime import UTC, datetime

from rmq_client.admin.broker_results import RequestQueue
from rmq_client.admin.broker_runtime import runtime_of


def test_figures_are_numbers_and_times() -> None:
    found = runtime_of(
        {
            "brokerVersionDesc": "V5_3_3",
            "bootTimestamp": "1700000000000",
            "putMessageTimesTotal": "12",
            "putTps": "1.5 2.5 3.5",
            "msgPutTotalTodayNow": "9",
            "msgPutTotalTodayMorning": "4",
            "getMessageEntireTimeMax": "1250",
            "commitLogDiskRatio": "0.25",
            "earliestMessageTimeStamp": "-1",
            "sendThreadPoolQueueSize": "3",
            "sendThreadPoolQueueCapacity": "10",
            "sendThreadPoolQueueHeadWaitTimeMills": "200",
        }
    )
    assert found.version == "V5_3_3"
    assert found.started == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert (found.stored_messages, found.stored_per_second, found.stored_today) == (12, 1.5, 5)
    assert (found.longest_read_seconds, found.disk_ratio) == (1.25, 0.25)
    assert found.oldest_message is None
    assert found.requests["send"] == RequestQueue(3, 10, 0.2)
    assert found.requests["pull"] == RequestQueue(0, 0, 0.0)


def test_unreadable_figures_are_0() -> None:
    found = runtime_of({"putTps": "", "putMessageTimesTotal": "many", "commitLogDiskRatio": "?"})
    assert (found.stored_per_second, found.stored_messages, found.disk_ratio) == (0.0, 0, 0.0)
