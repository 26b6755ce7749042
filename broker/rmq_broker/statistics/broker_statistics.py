"""Counters of stored and delivered messages: plain integers that the hot path increments.

    statistics.of_topic("orders").put_messages += 1      # a caller keeps the object: no look-up per message

They are sampled once a second. Totals and rates are computed on request (requests 28 and 315, metrics) in the
form of Apache RocketMQ 5.3.3's StoreStatsService, BrokerStats and BrokerStatsManager.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Container
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

from rmq_remoting.daemon.histogram import Histogram

from ..clock import ClockMs
from .event_counts import EventCounts
from .time_series import SAMPLE_EVERY_SECONDS, SeriesTable, TimeSeries, Totals

SAMPLE_SECONDS: Final = 1
_RATE_WINDOWS_SECONDS: Final = (10, 60, 600)
_CLIENTS_PUT: Final = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
_CLIENTS_GOT: Final = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"

# Upper bounds in bytes of Apache's histogram of message sizes.
MESSAGE_SIZE_BOUNDS: Final = (1024, 4096, 512 * 1024, 1024 * 1024, 2 * 1024 * 1024, 4 * 1024 * 1024)

# Upper bounds in ms of the classes that the percentiles are computed from: (step, number of steps).
_TIME_STEPS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_TIME_BOUNDS: Final = list(accumulate(step for step, times in _TIME_STEPS for _ in range(times)))
# Lower bounds in ms of the ranges of the distribution, and the names of the ranges.
_RANGE_BOUNDS: Final = [1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000]
_RANGE_NAMES: Final = (
    "<=0ms",
    "0~10ms",
    "10~50ms",
    "50~100ms",
    "100~200ms",
    "200~500ms",
    "500ms~1s",
    "1~2s",
    "2~3s",
    "3~4s",
    "4~5s",
    "5~10s",
    "10s~",
)


class TopicStatistics:
    """Messages stored in one topic; `put_sizes` counts them by size (MESSAGE_SIZE_BOUNDS).

    `delayed_...` counts those among them that were sent with a delay or a time.
    """

    __slots__ = ("delayed_bytes", "delayed_messages", "put_bytes", "put_messages", "put_sizes")

    def __init__(self) -> None:
        self.put_messages = 0
        self.put_bytes = 0
        self.delayed_messages = 0
        self.delayed_bytes = 0
        self.put_sizes = Histogram(MESSAGE_SIZE_BOUNDS)

    def totals(self) -> Totals:
        """Return the totals for the time series. A call is a message here; Apache counts requests."""
        return Totals(self.put_messages, self.put_bytes, self.put_messages)


class GroupStatistics:
    """Messages of one topic delivered to one group, the responses with them, and messages filtered out."""

    __slots__ = ("answers", "filtered_messages", "got_bytes", "got_messages")

    def __init__(self) -> None:
        self.got_messages = 0
        self.got_bytes = 0
        self.answers = 0
        self.filtered_messages = 0

    def totals(self) -> Totals:
        """Return the totals for the time series."""
        return Totals(self.got_messages, self.got_bytes, self.answers)


class PutTimes:
    """Latency of writes, minute by minute."""

    def __init__(self) -> None:
        self.max_ms = 0
        # Writes of less than a millisecond in this minute. Callers count these: a call would take longer.
        self.under_a_millisecond = 0
        self._buckets, self._last_buckets = _empty_buckets(), _empty_buckets()
        self._ranges, self._last_ranges = _empty_ranges(), _empty_ranges()

    def add(self, elapsed_ms: int) -> None:
        """Count one write of a millisecond or more."""
        self._buckets[bisect_left(_TIME_BOUNDS, elapsed_ms)] += 1
        self._ranges[bisect_right(_RANGE_BOUNDS, elapsed_ms)] += 1
        self.max_ms = max(self.max_ms, elapsed_ms)

    def end_minute(self) -> None:
        """Begin the next minute; `percentile` and `distribution` show the one that ended."""
        self._buckets[0] += self.under_a_millisecond
        self._ranges[0] += self.under_a_millisecond
        self.under_a_millisecond = 0
        self._last_buckets, self._buckets = self._buckets, _empty_buckets()
        self._last_ranges, self._ranges = self._ranges, _empty_ranges()

    def percentile(self, share: float) -> float:
        """Return the percentile in ms, interpolated, for a share (0 to 1) of the last minute's writes."""
        wanted = int(sum(self._last_buckets) * share)
        passed = 0
        for index, count in enumerate(self._last_buckets[:-1]):
            if wanted <= passed + count:
                lower = _TIME_BOUNDS[index - 1] if index else 0
                part = (wanted - passed) / count if count else 0.0
                return lower + (_TIME_BOUNDS[index] - lower) * part
            passed += count
        return float(_TIME_BOUNDS[-1])

    def distribution(self) -> str:
        """Return the last minute's writes by range, e.g. `[<=0ms]:12 [0~10ms]:3 ...`."""
        return "".join(
            f"[{name}]:{count} " for name, count in zip(_RANGE_NAMES, self._last_ranges, strict=True)
        )


def _empty_buckets() -> list[int]:
    return [0] * (len(_TIME_BOUNDS) + 1)


def _empty_ranges() -> list[int]:
    return [0] * len(_RANGE_NAMES)


class _Sample(NamedTuple):
    at_ms: int
    put_messages: int
    pulls_found: int
    pulls_missed: int
    got_messages: int


class _DayTotals(NamedTuple):
    """Messages of non-system topics since the start of the broker, at some midnight."""

    put: int = 0
    got: int = 0


class BrokerStatistics:
    """The counters of one broker. Everything belongs to the loop's thread; other threads may read."""

    def __init__(self, system_topics: Container[str], now_ms: ClockMs) -> None:
        self.started_at_ms = now_ms()
        self.put_failures = 0
        self.pulls_found = 0
        self.pulls_missed = 0
        self.put_times = PutTimes()
        self.topics: dict[str, TopicStatistics] = {}
        self.groups: dict[tuple[str, str], GroupStatistics] = {}
        self.sent_back = EventCounts(now_ms)
        self.dead_letters = EventCounts(now_ms)
        self.check_points = EventCounts(now_ms)
        self.acknowledgements = EventCounts(now_ms)
        # By Apache's names.
        self._events = {
            "SNDBCK_PUT_NUMS": self.sent_back,
            "DLQ_PUT_NUMS": self.dead_letters,
            "GROUP_CK_NUMS": self.check_points,
            "GROUP_ACK_NUMS": self.acknowledgements,
        }
        self._system_topics = system_topics
        self._now_ms = now_ms
        # Counts of deleted topics and groups, so that totals never fall.
        self._gone_topics: dict[bool, TopicStatistics] = {True: TopicStatistics(), False: TopicStatistics()}
        self._gone_groups: dict[bool, GroupStatistics] = {True: GroupStatistics(), False: GroupStatistics()}
        self._samples: deque[_Sample] = deque(maxlen=max(_RATE_WINDOWS_SECONDS) // SAMPLE_SECONDS + 1)
        self._topic_series: SeriesTable[str] = SeriesTable()
        self._group_series: SeriesTable[tuple[str, str]] = SeriesTable()
        self._broker_series = self._make_broker_series()
        self._sampled = 0
        self._yesterday = _DayTotals()
        self._today = _DayTotals()
        self._midnight_ms = _next_midnight_ms(self.started_at_ms)
        self._sample_rates(self.started_at_ms)

    # --- counting ---

    def of_topic(self, topic: str) -> TopicStatistics:
        """Return a topic's counters: the same object until `forget_topic`."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicStatistics()
            self._topic_series.add(topic, found.totals, self._now_ms())
        return found

    def of_group(self, group: str, topic: str) -> GroupStatistics:
        """Return a group's counters for a topic: the same object until either is forgotten."""
        found = self.groups.get((group, topic))
        if found is None:
            found = self.groups[group, topic] = GroupStatistics()
            self._group_series.add((group, topic), found.totals, self._now_ms())
        return found

    def forget_topic(self, topic: str) -> None:
        """Add the counters of a deleted topic to the totals, and drop them."""
        counted = self.topics.pop(topic, None)
        self._topic_series.discard(topic)
        if counted is not None:
            gone = self._gone_topics[topic in self._system_topics]
            gone.put_messages += counted.put_messages
            gone.put_bytes += counted.put_bytes
        self._forget([key for key in self.groups if key[1] == topic])
        for events in self._events.values():
            events.forget_topic(topic)

    def forget_group(self, group: str) -> None:
        """Add the counters of a deleted group to the totals, and drop them."""
        self._forget([key for key in self.groups if key[0] == group])
        for events in self._events.values():
            events.forget_group(group)

    # --- sampling ---

    def sample(self) -> None:
        """Sample the counters; must be called every `SAMPLE_SECONDS`."""
        now_ms = self._now_ms()
        self._sampled += 1
        self._sample_rates(now_ms)
        self._topic_series.sample(now_ms)
        self._group_series.sample(now_ms)
        for events in self._events.values():
            events.sample(now_ms)
        if self._sampled % SAMPLE_EVERY_SECONDS == 0:
            for series in self._broker_series.values():
                series.sample(now_ms)
        if self._sampled % 60 == 0:
            self.put_times.end_minute()
        if now_ms >= self._midnight_ms:
            self._midnight_ms = _next_midnight_ms(now_ms)
            self._yesterday, self._today = self._today, self._client_totals()

    # --- reading ---

    @property
    def put_messages(self) -> int:
        """Messages stored since the start."""
        return sum([topic.put_messages for topic in self._all_topics()])

    @property
    def put_bytes(self) -> int:
        """Bytes stored since the start."""
        return sum([topic.put_bytes for topic in self._all_topics()])

    @property
    def got_messages(self) -> int:
        """Messages delivered since the start."""
        counted = [*self.groups.values(), *self._gone_groups.values()]
        return sum([group.got_messages for group in counted])

    def topic_put_tps(self, topic: str) -> float:
        """Return the messages per second stored in a topic in the last minute."""
        series = self._topic_series.find(topic)
        return 0.0 if series is None else series.per_second(self._now_ms())

    def group_get_tps(self, group: str, topic: str) -> float:
        """Return the messages per second of a topic delivered to a group in the last minute."""
        series = self._group_series.find((group, topic))
        return 0.0 if series is None else series.per_second(self._now_ms())

    def topic_series(self, topic: str) -> TimeSeries | None:
        """Return the series of messages stored in a topic."""
        return self._topic_series.find(topic)

    def group_series(self, group: str, topic: str) -> TimeSeries | None:
        """Return the series of messages of a topic delivered to a group."""
        return self._group_series.find((group, topic))

    def event_series(self, name: str, group: str, topic: str) -> TimeSeries | None:
        """Return the series of an event, by Apache's name for it, for a group and a topic."""
        events = self._events.get(name)
        return None if events is None else events.series(group, topic)

    def broker_series(self, name: str) -> TimeSeries | None:
        """Return a series of the whole broker by Apache's name for it, e.g. `BROKER_PUT_NUMS`."""
        return self._broker_series.get(name)

    def runtime_info(self) -> dict[str, str]:
        """Return the figures of request 28; rates are over 10, 60 and 600 seconds."""
        put_messages, put_bytes = self.put_messages, self.put_bytes
        client_totals = self._client_totals()
        # At least 1, as with Apache: tools divide by it.
        total = max(put_messages, 1)
        put, found = self._rates("put_messages"), self._rates("pulls_found")
        missed, got = self._rates("pulls_missed"), self._rates("got_messages")
        return {
            "bootTimestamp": str(self.started_at_ms),
            "runtime": _duration_text(self._now_ms() - self.started_at_ms),
            "putMessageEntireTimeMax": str(self.put_times.max_ms),
            "putMessageTimesTotal": str(total),
            "putMessageFailedTimes": str(self.put_failures),
            "putMessageSizeTotal": str(put_bytes),
            "putMessageDistributeTime": self.put_times.distribution(),
            "putMessageAverageSize": str(put_bytes / total),
            "putLatency99": f"{self.put_times.percentile(0.99):.2f}",
            "putLatency999": f"{self.put_times.percentile(0.999):.2f}",
            "putTps": _rates_text(put),
            "getFoundTps": _rates_text(found),
            "getMissTps": _rates_text(missed),
            "getTotalTps": _rates_text([one + other for one, other in zip(found, missed, strict=True)]),
            "getTransferredTps": _rates_text(got),
            "msgPutTotalYesterdayMorning": str(self._yesterday.put),
            "msgPutTotalTodayMorning": str(self._today.put),
            "msgPutTotalTodayNow": str(client_totals.put),
            "msgGetTotalYesterdayMorning": str(self._yesterday.got),
            "msgGetTotalTodayMorning": str(self._today.got),
            "msgGetTotalTodayNow": str(client_totals.got),
        }

    # --- inside ---

    def _forget(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            counted = self.groups.pop(key)
            self._group_series.discard(key)
            gone = self._gone_groups[key[1] in self._system_topics]
            gone.got_messages += counted.got_messages
            gone.got_bytes += counted.got_bytes

    def _all_topics(self) -> list[TopicStatistics]:
        return [*self.topics.values(), *self._gone_topics.values()]

    def _client_totals(self) -> _DayTotals:
        system = self._system_topics
        put = sum(topic.put_messages for name, topic in list(self.topics.items()) if name not in system)
        got = sum(group.got_messages for key, group in list(self.groups.items()) if key[1] not in system)
        return _DayTotals(
            put + self._gone_topics[False].put_messages, got + self._gone_groups[False].got_messages
        )

    def _sample_rates(self, now_ms: int) -> None:
        sample = _Sample(now_ms, self.put_messages, self.pulls_found, self.pulls_missed, self.got_messages)
        self._samples.append(sample)

    def _make_broker_series(self) -> dict[str, TimeSeries]:
        """Return the series of the whole broker; as in Apache, they count no calls."""
        return {
            name: TimeSeries(partial(self._broker_totals, name), self.started_at_ms)
            for name in (
                "BROKER_PUT_NUMS",
                "BROKER_GET_NUMS",
                "BROKER_CK_NUMS",
                "BROKER_ACK_NUMS",
                _CLIENTS_PUT,
                _CLIENTS_GOT,
            )
        }

    def _broker_totals(self, name: str) -> Totals:
        if name == "BROKER_PUT_NUMS":
            count = self.put_messages
        elif name == "BROKER_GET_NUMS":
            count = self.got_messages
        elif name == "BROKER_CK_NUMS":
            count = self.check_points.total
        elif name == "BROKER_ACK_NUMS":
            count = self.acknowledgements.total
        elif name == _CLIENTS_PUT:
            count = self._client_totals().put
        else:
            count = self._client_totals().got
        return Totals(count, 0, 0)

    def _rates(self, counter: str) -> list[float]:
        """Return the rates per second over each window, or over the part of it since the start."""
        samples = list(self._samples)
        last = samples[-1]
        rates: list[float] = []
        for seconds in _RATE_WINDOWS_SECONDS:
            first = samples[max(0, len(samples) - 1 - seconds // SAMPLE_SECONDS)]
            elapsed_ms = last.at_ms - first.at_ms
            increase: int = getattr(last, counter) - getattr(first, counter)
            rates.append(increase * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0)
        return rates


def _rates_text(rates: list[float]) -> str:
    return " ".join(map(str, rates))


def _duration_text(elapsed_ms: int) -> str:
    minutes, seconds = divmod(max(0, elapsed_ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _next_midnight_ms(now_ms: int) -> int:
    """Return the next start of a day in the local time zone."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone()
    tomorrow = (today + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    return int(tomorrow.astimezone().timestamp() * 1000)
