"""Retried errors and timeouts of attempts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmq_client import BrokerUnreachable, RetryPolicy, TimedOut, TooMuchUnderWay, UsageError
from rmq_client.errors import broker_error
from rmq_remoting.codes import ResponseCode

# Apache RocketMQ 5.3.3, DefaultMQProducer.retryResponseCodes.
_APACHES_CODES = {
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.NO_PERMISSION,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
    ResponseCode.GO_AWAY,
}
# Refusals of a broker that limits a client; Apache's brokers do not answer sends with them.
_OUR_CODES = {ResponseCode.FLOW_CONTROL, ResponseCode.POLLING_FULL}


def test_retryable_codes_match_apaches_client() -> None:
    policy = RetryPolicy()
    worthwhile = {code for code in ResponseCode if policy.is_worthwhile(broker_error(code, None, "host:1"))}
    assert worthwhile == _APACHES_CODES | _OUR_CODES


def test_further_codes_can_be_named() -> None:
    policy = RetryPolicy(further_codes=frozenset({ResponseCode.MESSAGE_ILLEGAL, 4711}))
    assert policy.is_worthwhile(broker_error(ResponseCode.MESSAGE_ILLEGAL, None, "host:1"))
    assert policy.is_worthwhile(broker_error(4711, None, "host:1"))


@pytest.mark.parametrize("error", [TimedOut("t"), BrokerUnreachable("b"), TooMuchUnderWay("m")])
def test_missing_answers_are_retried(error: Exception) -> None:
    assert RetryPolicy().is_worthwhile(error)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "remaining", "attempts", "has_other", "seconds"),
    [
        (RetryPolicy(), 3.0, 3, True, 1.0),
        (RetryPolicy(), 2.0, 2, True, 1.0),
        (RetryPolicy(), 1.9, 1, True, 1.9),  # the last attempt may use all of it
        (RetryPolicy(), 3.0, 3, False, 3.0),  # a single slow broker is not tried three times
        (RetryPolicy(), 0.3, 3, True, 0.2),  # expired requests are looked for ten times a second
        (RetryPolicy(), 0.1, 3, True, 0.1),
        (RetryPolicy(attempt_timeout_seconds=0.5), 3.0, 3, True, 0.5),
        (RetryPolicy(attempt_timeout_seconds=0.5), 3.0, 2, False, 0.5),
        (RetryPolicy(attempt_timeout_seconds=0.5), 3.0, 1, True, 3.0),
        (RetryPolicy(attempt_timeout_seconds=0.5), 0.2, 2, True, 0.2),
    ],
)
def test_attempts_share_the_timeout(
    policy: RetryPolicy, remaining: float, attempts: int, has_other: bool, seconds: float
) -> None:
    assert policy.attempt_seconds(remaining, attempts, has_other=has_other) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: RetryPolicy(retries=-1), "retries=-1: must be at least 0"),
        (lambda: RetryPolicy(attempt_timeout_seconds=0), "attempt_timeout_seconds=0: must be above 0"),
    ],
)
def test_invalid_policies_are_refused(make: Callable[[], RetryPolicy], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        make()
