"""Reading of a broker's runtime information (Apache RocketMQ 5.3.3, StoreStatsService)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .broker_results import BrokerRuntime, RequestQueue
from .results import time_of

# Kinds of requests, by the prefix of their keys.
_QUEUES: Final = {
    "send": "sendThreadPoolQueue",
    "pull": "pullThreadPoolQueue",
    "lite_pull": "litePullThreadPoolQueue",
    "query": "queryThreadPoolQueue",
    "ack": "ackThreadPoolQueue",
}


def runtime_of(table: Mapping[str, str]) -> BrokerRuntime:
    """Return the figures of a table by Apache's names. A figure that is missing or unreadable is 0."""

    def number(key: str) -> float:
        try:
            return float(table.get(key, "").split()[0])
        except (IndexError, ValueError):
            return 0.0

    def count(key: str) -> int:
        text = table.get(key, "").strip()
        return int(text) if text.lstrip("-").isdigit() else 0

    return BrokerRuntime(
        version=table.get("brokerVersionDesc", ""),
        started=time_of(count("bootTimestamp")),
        stored_messages=count("putMessageTimesTotal"),
        stored_bytes=count("putMessageSizeTotal"),
        stored_per_second=number("putTps"),
        delivered_per_second=number("getTransferredTps"),
        stored_today=count("msgPutTotalTodayNow") - count("msgPutTotalTodayMorning"),
        delivered_today=count("msgGetTotalTodayNow") - count("msgGetTotalTodayMorning"),
        longest_write_seconds=count("putMessageEntireTimeMax") / 1000,
        longest_read_seconds=count("getMessageEntireTimeMax") / 1000,
        log_start=count("commitLogMinOffset"),
        log_end=count("commitLogMaxOffset"),
        oldest_message=time_of(count("earliestMessageTimeStamp")),
        undispatched_bytes=count("dispatchBehindBytes"),
        disk_ratio=number("commitLogDiskRatio"),
        timers_entered_per_second=number("timerEnqueueTps"),
        timers_delivered_per_second=number("timerDequeueTps"),
        timers_behind_messages=count("timerOffsetBehind"),
        requests={
            kind: RequestQueue(
                count(f"{prefix}Size"),
                count(f"{prefix}Capacity"),
                count(f"{prefix}HeadWaitTimeMills") / 1000,
            )
            for kind, prefix in _QUEUES.items()
        },
    )
