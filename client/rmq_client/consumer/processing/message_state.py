"""The life of a message in a push consumer, as a table.

::

    READY ──taken──► INFLIGHT ──succeeded──► COMMIT
      ▲ ▲                │ │
      │ └───not begun────┘ └──refused, timed out──► WAITING_RETRY ──sent back──► COMMIT
      └─────────────────────────tried again──────────────┘   └─────buried──────► DLQ

COMMIT and DLQ are the end: the message leaves its process queue, and the offset may pass it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class MessageState(IntEnum):
    """Where a message is."""

    READY = 0  # pulled; waits for a call of the listener
    INFLIGHT = 1  # in a call, or on its way to one
    WAITING_RETRY = 2  # refused: on its way back to the broker, or kept here for another try
    COMMIT = 3  # done with: consumed, or the broker will deliver it again
    DLQ = 4  # done with: it is among the dead letters


class MessageEvent(IntEnum):
    """What happens to a message."""

    TAKEN = 0  # put into a call
    NOT_BEGUN = 1  # the call was given up before it began
    SUCCEEDED = 2  # the listener is done with it, or nobody is to try it again
    REFUSED = 3  # the listener wants it later, or failed
    TIMED_OUT = 4  # the call takes too long
    SENT_BACK = 5  # the broker has it and will deliver it again
    DEAD_LETTERED = 6  # the broker has put it among the dead letters
    TRIED_AGAIN = 7  # the wait for another try here is over


class StateError(Exception):
    """Something happened to a message that cannot happen in its state: a fault of this program."""


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
    """The state after the event. Raises StateError."""
    after = TRANSITIONS[state].get(event)
    if after is None:
        raise StateError(f"a message that is {state.name} cannot be {event.name}")
    return after
