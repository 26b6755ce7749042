"""The process queue: consumed offsets and bounds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_client import FlowControl, UsageError
from rmq_client.consumer.processing.message_state import MessageEvent, MessageState, StateError
from rmq_client.consumer.processing.process_queue import ProcessQueue
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue


def _message(offset: int, size: int = 1) -> MessageExt:
    return MessageExt("T", b"x" * size, queue_offset=offset)


def _queue() -> ProcessQueue:
    return ProcessQueue(MessageQueue("T", "b", 0), now=0.0)


def _remove(queue: ProcessQueue, messages: list[MessageExt], now: float) -> int | None:
    """Simulate that the listener has consumed the messages."""
    queue.move((message for message in messages if queue.holds(message)), MessageEvent.TAKEN)
    return queue.finish(messages, MessageEvent.SUCCEEDED, now)


def test_the_offset_is_that_of_the_first_unconsumed_message() -> None:
    queue = _queue()
    messages = [_message(offset) for offset in (3, 4, 7, 8)]
    queue.put(messages)
    assert (len(queue), queue.bytes, queue.min_offset, queue.max_offset, queue.span) == (4, 4, 3, 8, 5)
    assert _remove(queue, [messages[1]], 1.0) == 3
    assert _remove(queue, [messages[0]], 2.0) == 7
    assert _remove(queue, [messages[3]], 3.0) == 7
    assert _remove(queue, [messages[2]], 4.0) == 9
    assert (len(queue), queue.bytes, queue.min_offset, queue.span) == (0, 0, None, 0)
    assert queue.last_consumed_at == 4.0
    assert _remove(queue, [messages[2]], 5.0) is None


def test_a_body_changed_by_the_listener_counts_with_its_original_size() -> None:
    queue = _queue()
    messages = [_message(offset, size=10) for offset in range(3)]
    queue.put(messages)
    messages[0].body = b""
    messages[1].body = b"x" * 1_000
    _remove(queue, messages[:2], 1.0)
    assert queue.bytes == 10


def test_a_duplicate_message_counts_once() -> None:
    queue = _queue()
    first, second, third = _message(1), _message(2), _message(3)
    assert queue.put([first, second]) == [first, second]
    assert queue.put([_message(2), third]) == [third]
    assert (len(queue), queue.bytes) == (3, 3)
    assert _remove(queue, [_message(2)], 1.0) == 1
    assert queue.holds(_message(1))
    assert not queue.holds(_message(2))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_the_offset_advances_only_without_gaps(gaps: list[int], order: random.Random) -> None:
    queue = _queue()
    offset = 0
    messages = []
    for gap in gaps:
        offset += gap + 1
        messages.append(_message(offset))
    queue.put(messages)
    left = {message.queue_offset for message in messages}
    order.shuffle(messages)
    for message in messages:
        left.discard(message.queue_offset)
        assert _remove(queue, [message], 1.0) == (min(left) if left else offset + 1)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (FlowControl(max_messages=2), "3 messages wait"),
        (FlowControl(max_bytes=29), "30 bytes wait"),
        (FlowControl(max_span=9), "offset 0 waits, 10 before the last"),
        (FlowControl(max_messages=3, max_bytes=30, max_span=10), None),
    ],
)
def test_bounds(limits: FlowControl, problem: str | None) -> None:
    queue = _queue()
    queue.put([_message(0, 10), _message(5, 10), _message(10, 10)])
    excess = queue.excess(limits)
    assert excess is None if problem is None else problem in str(excess)


def test_bounds_that_admit_nothing_are_refused() -> None:
    for bad in ({"max_span": 0}, {"max_topic_messages": 0}, {"max_topic_bytes": -1}):
        with pytest.raises(UsageError):
            FlowControl(**bad)


def test_the_queues_of_a_topic_share_its_bounds() -> None:
    limits = FlowControl(max_topic_messages=10, max_topic_bytes=1_000)
    assert limits.is_per_topic
    for count, messages, size_bytes in ((0, 10, 1_000), (1, 10, 1_000), (4, 2, 250), (2_000, 1, 1)):
        of_queue = limits.for_queues(count)
        assert (of_queue.max_messages, of_queue.max_bytes) == (messages, size_bytes)
    of_queue = FlowControl(max_bytes=77, max_topic_messages=10).for_queues(5)
    assert (of_queue.max_messages, of_queue.max_bytes, of_queue.max_span) == (2, 77, 2_000)
    assert not FlowControl().is_per_topic


def test_messages_are_taken_and_retried_in_order() -> None:
    queue = _queue()
    messages = [_message(offset) for offset in range(5)]
    queue.put(messages)
    assert queue.take(2) == messages[:2]
    assert queue.take(2) == messages[2:4]
    queue.move(messages[:2], MessageEvent.NOT_BEGUN)
    assert queue.in_state(MessageState.READY) == [messages[0], messages[1], messages[4]]
    assert queue.take(10) == [messages[0], messages[1], messages[4]]
    assert queue.take(10) == []
    queue.move(messages, MessageEvent.REFUSED)
    assert queue.take(10) == []
    assert queue.finish(messages[:1], MessageEvent.DEAD_LETTERED, 1.0) == 1
    queue.move(messages[1:], MessageEvent.TRIED_AGAIN)
    assert queue.take(10) == messages[1:]


def test_an_impossible_event_raises_and_changes_nothing() -> None:
    queue = _queue()
    queue.put([_message(1)])
    with pytest.raises(StateError, match="READY cannot be SUCCEEDED"):
        queue.finish([_message(1)], MessageEvent.SUCCEEDED, 1.0)
    assert queue.holds(_message(1))


def test_a_dropped_queue_is_closing_too() -> None:
    queue = _queue()
    queue.drop()
    assert queue.closing
    assert queue.dropped
