"""The process queue: offsets up to which all is consumed, and its bounds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_client import FlowControl, UsageError
from rmq_client.consumer.process_queue import ProcessQueue
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue


def _message(offset: int, size: int = 1) -> MessageExt:
    return MessageExt("T", b"x" * size, queue_offset=offset)


def _queue() -> ProcessQueue:
    return ProcessQueue(MessageQueue("T", "b", 0), now=0.0)


def test_the_first_message_that_is_left_is_where_to_go_on() -> None:
    queue = _queue()
    messages = [_message(offset) for offset in (3, 4, 7, 8)]
    queue.put(messages)
    assert (len(queue), queue.bytes, queue.min_offset, queue.max_offset, queue.span) == (4, 4, 3, 8, 5)
    assert queue.remove([messages[1]], 1.0) == 3
    assert queue.remove([messages[0]], 2.0) == 7
    assert queue.remove([messages[3]], 3.0) == 7
    assert queue.remove([messages[2]], 4.0) == 9
    assert (len(queue), queue.bytes, queue.min_offset, queue.span) == (0, 0, None, 0)
    assert queue.last_consumed_at == 4.0
    assert queue.remove([messages[2]], 5.0) is None


def test_a_message_that_comes_twice_counts_once() -> None:
    queue = _queue()
    queue.put([_message(1), _message(2)])
    queue.put([_message(2), _message(3)])
    assert (len(queue), queue.bytes) == (3, 3)
    assert queue.remove([_message(2), _message(2)], 1.0) == 1
    assert queue.holds(_message(1))
    assert not queue.holds(_message(2))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_no_offset_is_passed_before_all_before_it_are_consumed(gaps: list[int], order: random.Random) -> None:
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
        assert queue.remove([message], 1.0) == (min(left) if left else offset + 1)


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


def test_bounds_that_would_let_nothing_through() -> None:
    with pytest.raises(UsageError):
        FlowControl(max_span=0)
