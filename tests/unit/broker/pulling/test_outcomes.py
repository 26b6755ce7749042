"""Outcomes of reads: which response code each status of the store ends in."""

from __future__ import annotations

from rmq_broker.pulling.outcomes import Deleted, Empty, Found, Moved, NotFound, Skipped, outcome_of
from rmq_broker.store.api import GetResult, GetStatus
from rmq_remoting.codes import ResponseCode
from tests.support.rows import each_row


@each_row(
    ("status", "asked_offset", "kind"),
    [
        (GetStatus.NO_MATCHED_MESSAGE, 5, Skipped),
        (GetStatus.MESSAGE_WAS_REMOVING, 5, Deleted),
        (GetStatus.OFFSET_FOUND_NULL, 5, NotFound),
        (GetStatus.OFFSET_OVERFLOW_ONE, 5, NotFound),
        (GetStatus.OFFSET_OVERFLOW_BADLY, 5, Moved),
        (GetStatus.OFFSET_TOO_SMALL, 5, Moved),
        (GetStatus.OFFSET_RESET, 5, Moved),
        # An empty queue begins at 0.
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, NotFound),
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 5, Moved),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 0, NotFound),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 5, Moved),
    ],
)
def test_a_read_without_messages(status: GetStatus, asked_offset: int, kind: type[Empty]) -> None:
    outcome = outcome_of(GetResult(status, 7, 1, 9), asked_offset)
    assert type(outcome) is kind
    assert (outcome.status, outcome.next_offset, outcome.min_offset, outcome.max_offset) == (status, 7, 1, 9)


def test_every_status_has_an_outcome() -> None:
    for status in GetStatus:
        read = GetResult(status, 7, 1, 9)
        assert isinstance(outcome_of(read, 5), Found) == (status is GetStatus.FOUND)


def test_response_codes() -> None:
    assert (Skipped.code, Deleted.code) == (ResponseCode.PULL_RETRY_IMMEDIATELY,) * 2
    assert Moved.code == ResponseCode.PULL_OFFSET_MOVED
    assert NotFound.code == ResponseCode.PULL_NOT_FOUND
