"""The state table of a message: every state and every event."""

from __future__ import annotations

import pytest

from rmq_client.consumer.processing.message_state import (
    TRANSITIONS,
    MessageEvent,
    MessageState,
    StateError,
    next_state,
)
from tests.support.rows import each_row

_ALLOWED = {
    (MessageState.READY, MessageEvent.TAKEN): MessageState.INFLIGHT,
    (MessageState.INFLIGHT, MessageEvent.NOT_BEGUN): MessageState.READY,
    (MessageState.INFLIGHT, MessageEvent.SUCCEEDED): MessageState.COMMIT,
    (MessageState.INFLIGHT, MessageEvent.REFUSED): MessageState.WAITING_RETRY,
    (MessageState.INFLIGHT, MessageEvent.TIMED_OUT): MessageState.WAITING_RETRY,
    (MessageState.WAITING_RETRY, MessageEvent.SENT_BACK): MessageState.COMMIT,
    (MessageState.WAITING_RETRY, MessageEvent.DEAD_LETTERED): MessageState.DLQ,
    (MessageState.WAITING_RETRY, MessageEvent.TRIED_AGAIN): MessageState.READY,
}


@each_row("state", MessageState)
@each_row("event", MessageEvent)
def test_every_event_in_every_state(state: MessageState, event: MessageEvent) -> None:
    expected = _ALLOWED.get((state, event))
    if expected is not None:
        assert next_state(state, event) is expected
        return
    with pytest.raises(StateError, match=f"{state.name} cannot be {event.name}"):
        next_state(state, event)


def test_every_state_is_reachable_and_only_final_ones_are_final() -> None:
    reached = {MessageState.READY} | {after for row in TRANSITIONS.values() for after in row.values()}
    assert reached == set(MessageState)
    ends = {state for state in MessageState if not TRANSITIONS[state]}
    assert ends == {MessageState.COMMIT, MessageState.DLQ}
