"""Values that describe the lag of a query, as the listener returns them."""

from __future__ import annotations

from dataclasses import dataclass

from ..offsets import QueueKey
from ..stream_losses import QueueLoss


@dataclass(frozen=True, slots=True)
class QueueLag:
    """One queue: its lag in messages, and the age of the oldest of them in seconds (0 without a lag).

    `at_least`: the age is a lower bound.
    """

    queue: QueueKey
    messages: int
    seconds: float
    at_least: bool


@dataclass(frozen=True, slots=True)
class TopicLag:
    """The queues of one topic: the sum of their messages, and the maximum of their seconds."""

    topic: str
    messages: int
    seconds: float
    at_least: bool
    queues: tuple[QueueLag, ...]


@dataclass(frozen=True, slots=True)
class QueryLag:
    """One query: its last batch, and the lag of all topics that it reads through this connector.

    Rows and rates leave out other sources of the query. `rows`: read since the first report of this run.
    `losses`: messages lost since the start of this run, by queue. `heard_at`: when the query last reported
    anything (seconds since 1970 UTC).
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
    losses: tuple[QueueLoss, ...] = ()

    @property
    def lost_messages(self) -> int:
        """Messages lost since the start of this run. With failOnDataLoss, the query fails instead."""
        return sum(loss.messages for loss in self.losses)

    @property
    def messages(self) -> int | None:
        """Lag in messages; None if Spark does not report the newest offsets."""
        return sum(topic.messages for topic in self.topics) if self.topics else None

    @property
    def seconds(self) -> float | None:
        """Age of the oldest of these messages; None as for `messages`."""
        return max((topic.seconds for topic in self.topics), default=None)

    @property
    def at_least(self) -> bool:
        """Whether `seconds` is a lower bound."""
        return any(topic.at_least for topic in self.topics)
