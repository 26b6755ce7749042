"""States of a message in a push consumer, as a table.

::

    READY ──taken──► INFLIGHT ──succeeded──► COMMIT
      ▲ ▲                │ │
      │ └───not begun────┘ └──refused, timed out──► WAITING_RETRY ──sent back──► COMMIT
      └─────────────────────────tried again──────────────┘   └──dead-lettered──► DLQ

COMMIT and DLQ are final: the message leaves its process queue, and its offset can be committed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class MessageState(IntEnum):
    """State of a message."""

    READY = 0  # pulled; waits for a call of the listener
    INFLIGHT = 1  # in a call, or queued for one
    WAITING_RETRY = 2  # refused: being sent back to the broker, or kept here for a retry
    COMMIT = 3  # final: consumed, or the broker will redeliver it
    DLQ = 4  # final: a dead letter


class MessageEvent(IntEnum):
    """Event in the life of a message."""

    TAKEN = 0  # put into a call
    NOT_BEGUN = 1  # the call was cancelled before it began
    SUCCEEDED = 2  # consumed, or not to be retried
    REFUSED = 3  # refused by the listener's result or exception
    TIMED_OUT = 4  # the call takes too long
    SENT_BACK = 5  # the broker will redeliver it
    DEAD_LETTERED = 6  # the broker has made it a dead letter
    TRIED_AGAIN = 7  # the pause before a retry here is over


class StateError(Exception):
    """An event that is impossible in a message's state: a bug of this program."""


TRANSITIONS: Final[dict[MessageState, dict[MessageEvent, MessageState]]] = {
    MessageState.READY: {MessageEvent.TAKEN: MessageState.INFLIGHT},
    MessageState.INFLIGHT: {
        MessageEvent.NOT_BEGUN: MessageState.READY,
        MessageEvent.SUCCEEDED: MessageState.COMMIT,
        MessageEvent.REFUSED: MessageState.WAITING_RETRY,
        MessageEvent.TIMED_OUT: MessageState.WAITING_RETRY,
    },
    MessageState.WAITING_RETRY: {
        MessageEvent.SENT_BACK: MessageState.COMMIT,
        MessageEvent.DEAD_LETTERED: MessageState.DLQ,
        MessageEvent.TRIED_AGAIN: MessageState.READY,
    },
    MessageState.COMMIT: {},
    MessageState.DLQ: {},
}


def next_state(state: MessageState, event: MessageEvent) -> MessageState:
    """Return the state after the event. Raises StateError."""
    after = TRANSITIONS[state].get(event)
    if after is None:
        raise StateError(f"a message that is {state.name} cannot be {event.name}")
    return after
