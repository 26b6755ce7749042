"""The lag of a query, as its listener tells it."""

from __future__ import annotations

from dataclasses import dataclass

from ..offsets import QueueKey


@dataclass(frozen=True, slots=True)
class QueueLag:
    """One queue: how many messages wait, and for how long the oldest of them has (0 where none waits).

    `at_least`: it has waited longer than that, nobody knows how much longer.
    """

    queue: QueueKey
    messages: int
    seconds: float
    at_least: bool


@dataclass(frozen=True, slots=True)
class TopicLag:
    """The queues of one topic: the sum of the messages, the longest of the times."""

    topic: str
    messages: int
    seconds: float
    at_least: bool
    queues: tuple[QueueLag, ...]


@dataclass(frozen=True, slots=True)
class QueryLag:
    """One query: its last batch, and the lag after it of all topics that it reads through this connector.

    Rows and rates leave other sources of the query out. `rows`: read since this run of the query was first
    heard of. `heard_at`: when the query last gave a sign of life (seconds since 1970 UTC).
    """

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    batch_seconds: float
    rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    heard_at: float
    topics: tuple[TopicLag, ...]

    @property
    def messages(self) -> int | None:
        """Messages that wait; None where Spark does not tell how far the queues reach."""
        return sum(topic.messages for topic in self.topics) if self.topics else None

    @property
    def seconds(self) -> float | None:
        """How long the oldest has waited; None as for `messages`."""
        return max((topic.seconds for topic in self.topics), default=None)

    @property
    def at_least(self) -> bool:
        """Whether it has waited longer than `seconds`."""
        return any(topic.at_least for topic in self.topics)
