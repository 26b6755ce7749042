"""Expectations of a topic, and the report of the messages that came instead."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from typing import Final

from rmq_broker.broker import Broker
from rmq_client import MessageExt

from .messages import Positions, application_topics, delayed_messages, ends_of, messages_of

_MOST_SHOWN: Final = 10
_MOST_BODY: Final = 80


class ExpectationFailed(AssertionError):
    """An expected event has not happened in time. The text tells which messages came instead."""


class TopicReader:
    """Reads the topics of one test: each message is handed out once.

    `started_at`: the ends of the topics before the test; the report shows only later messages.
    """

    def __init__(self, started_at: Positions) -> None:
        self._started_at = started_at
        self._next = dict(started_at)

    def new_messages(self, broker: Broker, topic: str) -> list[MessageExt]:
        """Return the messages of a topic that were not taken yet, in the order in which they were stored."""
        return messages_of(broker, topic, self._next)

    def take(self, messages: Sequence[MessageExt]) -> None:
        """Hand out these messages: the first ones of `new_messages`."""
        for message in messages:
            self._next[message.topic, message.queue_id] = message.queue_offset + 1

    def report(self, broker: Broker, topic: str, now_ms: int) -> str:
        """Describe the messages of a topic, those that are not delivered yet, and those of other topics."""
        lines = [f"  came: {described(message)}" for message in self.new_messages(broker, topic)]
        if len(lines) > _MOST_SHOWN:
            lines[_MOST_SHOWN:] = [f"  and {len(lines) - _MOST_SHOWN} more"]
        lines += [*_delayed(broker, topic, now_ms), *_not_delivered(broker, topic)]
        topics = application_topics(broker)
        lines += self._elsewhere(broker, [name for name in topics if name != topic])
        if topic not in topics:
            near = difflib.get_close_matches(topic, topics, n=1)
            suggestion = f"; did you mean {near[0]!r}?" if near else ""
            lines.append(f"  the broker has no topic {topic!r}{suggestion}")
        return "\n".join(lines) or "  no message was stored in any topic"

    def _elsewhere(self, broker: Broker, topics: Sequence[str]) -> list[str]:
        lines = []
        ends = ends_of(broker, topics)
        for topic in topics:
            places = [place for place in ends if place[0] == topic]
            count = sum(max(0, ends[place] - self._started_at.get(place, 0)) for place in places)
            if count:
                latest = messages_of(broker, topic, self._started_at)[-1]
                lines.append(f"  in topic {topic!r}: {counted(count)}, the latest {described(latest)}")
        return lines


def described(message: MessageExt) -> str:
    """Return one line about a message."""
    body = repr(message.body[:_MOST_BODY]) + ("…" if len(message.body) > _MOST_BODY else "")
    names = (("tags", message.tags), ("keys", " ".join(message.keys)))
    words = [f"{name}={value}" for name, value in names if value]
    if message.reconsume_times:
        words.append(f"reconsume_times={message.reconsume_times}")
    return " ".join([f"queue {message.queue_id} offset {message.queue_offset}", *words, f"body={body}"])


def check_wait(count: int, timeout_seconds: float) -> None:
    """Check what a test gives. Raises ValueError."""
    if count < 1:
        raise ValueError(f"count={count}: must be at least 1; `expect_nothing` checks that nothing comes")
    if timeout_seconds < 0:
        raise ValueError(f"timeout_seconds={timeout_seconds}: must not be negative")


class Deadline:
    """The end of a wait, by the machine's time: advancing the broker's time does not shorten it."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def has_passed(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._at


def _delayed(broker: Broker, topic: str, now_ms: int) -> list[str]:
    due = sorted(due_ms for _, due_ms in delayed_messages(broker, topic))
    if not due:
        return []
    seconds = max(0.0, (due[0] - now_ms) / 1000)
    return [f"  delayed: {counted(len(due))}, the first is due in {seconds:.1f} s; advance() lets time pass"]


def _not_delivered(broker: Broker, topic: str) -> list[str]:
    """Return a line on the timed messages of a topic, and one on those of open transactions."""
    services, lines = broker.services, []
    if timed := services.timers.counts.waiting.get(topic, 0):
        lines.append(f"  waiting for its time: {counted(timed)}; advance() lets time pass")
    if half := sum(half.topic == topic for half in services.transactions.halves.in_order()):
        lines.append(f"  in open transactions: {counted(half)}")
    return lines


def counted(count: int) -> str:
    """Return `1 message`, or `2 messages`."""
    return "1 message" if count == 1 else f"{count} messages"
