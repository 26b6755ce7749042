"""Backoff, and the classification of errors as transient."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import SourceUnavailable
from pyspark_rocketmq.retries import Backoff, is_transient
from rmq_client import (
    BrokerUnreachable,
    Busy,
    ClientError,
    NotAuthenticated,
    PermissionDenied,
    Rejected,
    TlsFailed,
    TopicNotFound,
    Unavailable,
    UsageError,
)


def test_delays_grow_until_the_timeout() -> None:
    now = 100.0
    backoff = Backoff(10.0, lambda: now)
    pauses: list[float] = []
    with pytest.raises(SourceUnavailable, match=r"nobody there.*10\.0 s.*brokerTimeout"):
        while True:
            pauses.append(backoff.next_pause("nobody there"))
            now += pauses[-1]
    assert sum(pauses) == pytest.approx(10.0)
    assert pauses[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert max(pauses) == 2.0
    assert backoff.elapsed_seconds() == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BrokerUnreachable("x"), True),
        (TopicNotFound("x"), True),
        (Busy(2, "x", "a"), True),
        (Unavailable(1, "x", "a"), True),
        (PermissionDenied(16, "x", "a"), False),
        (NotAuthenticated(16, "x", "a"), False),
        (TlsFailed("x"), False),
        (Rejected(13, "x", "a"), False),
        (UsageError("x"), False),
    ],
)
def test_transient_errors(error: ClientError, expected: bool) -> None:
    assert is_transient(error) is expected
