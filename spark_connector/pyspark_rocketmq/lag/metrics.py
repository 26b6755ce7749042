"""Prometheus metrics of the lag of streams.

They are computed at each scrape. An age thus grows while its query stands still, and nothing remains of a
query that has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from .reports import QueryLag, QueueLag, TopicLag

_QUERY: Final = ("query",)
_TOPIC: Final = ("query", "topic")
_QUEUE: Final = ("query", "topic", "broker", "queue_id")

# Name, meaning and value of each metric with one value per query.
_OF_QUERY: Final[Sequence[tuple[str, str, Callable[[QueryLag], float]]]] = (
    (
        "rmq_spark_input_rows_per_second",
        "Rows that arrived between the last two triggers, per second.",
        lambda lag: lag.input_rows_per_second,
    ),
    (
        "rmq_spark_processed_rows_per_second",
        "Rows of the last batch, divided by its duration.",
        lambda lag: lag.processed_rows_per_second,
    ),
    ("rmq_spark_batch_duration_seconds", "Duration of the last batch.", lambda lag: lag.batch_seconds),
    (
        "rmq_spark_last_event_timestamp_seconds",
        "When the query last ended a batch or reported that it had nothing to do.",
        lambda lag: lag.heard_at,
    ),
)


class LagCollector:
    """A collector for a registry of prometheus_client."""

    def __init__(self, reports: Callable[[], Sequence[QueryLag]], *, per_queue: bool) -> None:
        """`per_queue`: also export the lag of each queue, which may be many series."""
        self._reports = reports
        self._per_queue = per_queue

    def describe(self) -> Iterable[Metric]:
        """Return all families without samples, which a registry checks for duplicates."""
        return self._families(())

    def collect(self) -> Iterable[Metric]:
        """Return all families with their current samples."""
        return self._families(_labelled(self._reports()))

    def _families(self, lags: Sequence[tuple[str, QueryLag]]) -> Iterator[Metric]:
        yield from _of_topics(lags)
        if self._per_queue:
            yield from _of_queues(lags)
        rows = CounterMetricFamily("rmq_spark_rows", "Rows read since the query was started.", labels=_QUERY)
        for query, lag in lags:
            rows.add_metric([query], lag.rows)
        yield rows
        yield from _losses(lags, per_queue=self._per_queue)
        for name, meaning, value in _OF_QUERY:
            gauge = GaugeMetricFamily(name, meaning, labels=_QUERY)
            for query, lag in lags:
                gauge.add_metric([query], value(lag))
            yield gauge


def _of_topics(lags: Sequence[tuple[str, QueryLag]]) -> Iterator[Metric]:
    return _lag_families(
        "rmq_spark_lag",
        (
            "Messages stored when the last trigger began that no batch has read.",
            "Age of the oldest of these messages.",
        ),
        _TOPIC,
        [([query, topic.topic], topic) for query, lag in lags for topic in lag.topics],
    )


def _of_queues(lags: Sequence[tuple[str, QueryLag]]) -> Iterator[Metric]:
    queues = [(query, queue) for query, lag in lags for topic in lag.topics for queue in topic.queues]
    return _lag_families(
        "rmq_spark_queue_lag",
        ("As rmq_spark_lag_messages, by queue.", "As rmq_spark_lag_seconds, by queue."),
        _QUEUE,
        [([query, lag.queue.topic, lag.queue.broker, str(lag.queue.queue_id)], lag) for query, lag in queues],
    )


def _losses(lags: Sequence[tuple[str, QueryLag]], *, per_queue: bool) -> Iterator[Metric]:
    """Yield the losses by topic, for every topic of a query, and by queue for queues that have any."""
    meaning = "Messages that a query with failOnDataLoss=false has lost since it was started."
    topics = CounterMetricFamily("rmq_spark_lost_messages", meaning, labels=_TOPIC)
    for query, lag in lags:
        by_topic = Counter(dict.fromkeys((topic.topic for topic in lag.topics), 0))
        for loss in lag.losses:
            by_topic[loss.queue.topic] += loss.messages
        for topic, messages in sorted(by_topic.items()):
            topics.add_metric([query, topic], messages)
    yield topics
    if not per_queue:
        return
    queues = CounterMetricFamily(
        "rmq_spark_queue_lost_messages", "As rmq_spark_lost_messages, by queue.", labels=_QUEUE
    )
    for query, lag in lags:
        for loss in lag.losses:
            queue = loss.queue
            queues.add_metric([query, queue.topic, queue.broker, str(queue.queue_id)], loss.messages)
    yield queues


def _lag_families(
    name: str,
    meanings: tuple[str, str],
    labels: Sequence[str],
    samples: Sequence[tuple[Sequence[str], TopicLag | QueueLag]],
) -> Iterator[Metric]:
    """Yield two families, lag in messages and lag in seconds; `meanings` has the help text of each."""
    messages = GaugeMetricFamily(f"{name}_messages", meanings[0], labels=labels)
    seconds = GaugeMetricFamily(f"{name}_seconds", meanings[1], labels=labels)
    for values, lag in samples:
        messages.add_metric(values, lag.messages)
        seconds.add_metric(values, lag.seconds)
    yield messages
    yield seconds


def _labelled(lags: Sequence[QueryLag]) -> list[tuple[str, QueryLag]]:
    """Label queries by name, or by id if there is no name. Names need not be unique in a session."""
    names = Counter(lag.name for lag in lags)
    return [(_label(lag, is_unique=names[lag.name] == 1), lag) for lag in lags]


def _label(lag: QueryLag, *, is_unique: bool) -> str:
    if lag.name is None:
        return lag.query_id
    return lag.name if is_unique else f"{lag.name} {lag.query_id}"
