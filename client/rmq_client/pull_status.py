"""Outcomes of a pull request."""

from __future__ import annotations

from enum import Enum
from typing import Final

from rmq_remoting.codes import ResponseCode


class PullStatus(Enum):
    """Outcome of a pull."""

    FOUND = "FOUND"
    NO_NEW_MESSAGE = "NO_NEW_MESSAGE"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


def moved_text(offset: int | None, min_offset: int, max_offset: int) -> str:
    """Say why a broker has refused the offset of a pull: it was reset, or it is not in the queue."""
    if offset is not None and min_offset <= offset <= max_offset:
        return "offset was reset on the broker"
    return "offset not on the broker"


PULL_STATUSES: Final[dict[int, PullStatus]] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MESSAGE,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}
