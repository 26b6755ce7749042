"""Statistics of the last minute, hour and day: code 315 (Apache RocketMQ 5.3.3, BrokerStatsManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.bodies.broker_stats import BrokerStatsData, BrokerStatsItem
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.admin import ViewBrokerStatsDataRequestHeader

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...clock import ClockMs
    from ...statistics.broker_statistics import BrokerStatistics
    from ...statistics.time_series import Span, Spans, TimeSeries

_OF_TOPICS = ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE")
_OF_GROUPS = ("GROUP_GET_NUMS", "GROUP_GET_SIZE")


class StatsDataProcessor:
    """Read-only, from memory. The broker's own statistics have the name of its cluster as key."""

    def __init__(self, statistics: BrokerStatistics, cluster_name: str, now_ms: ClockMs) -> None:
        self._statistics = statistics
        self._cluster_name = cluster_name
        self._now_ms = now_ms

    def view(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """315: one statistic of a topic, of `topic@group`, or of the broker (the cluster's name)."""
        header = ViewBrokerStatsDataRequestHeader.decode(request.ext_fields)
        series = self._find(header.stats_name, header.stats_key)
        if series is None:
            remark = (
                f"no statistic {header.stats_name} of {header.stats_key}: it does not exist, had no messages "
                "since the broker's start, or is not counted here"
            )
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        now_ms = self._now_ms()
        in_bytes = header.stats_name.endswith("_SIZE")
        spans = series.size_bytes(now_ms) if in_bytes else series.messages(now_ms)
        return request.response(ResponseCode.SUCCESS, body=_body(spans).encode())

    def _find(self, name: str, key: str) -> TimeSeries | None:
        if name in _OF_TOPICS:
            return self._statistics.topic_series(key)
        if key == self._cluster_name:
            return self._statistics.broker_series(name)
        topic, _, group = key.partition("@")
        if name in _OF_GROUPS:
            return self._statistics.group_series(group, topic)
        return self._statistics.event_series(name, group, topic)


def _body(spans: Spans) -> BrokerStatsData:
    return BrokerStatsData(
        stats_minute=_item(spans.minute), stats_hour=_item(spans.hour), stats_day=_item(spans.day)
    )


def _item(span: Span) -> BrokerStatsItem:
    return BrokerStatsItem(sum=span.sum, tps=span.per_second, average_per_call=span.per_call)
