"""Checks of single values; `test_arguments.py` covers the parameters that they are for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rmq_client import InvalidArgumentError
from rmq_client.checks import check_choice, check_int, check_seconds, check_time_ms


def test_right_values_pass() -> None:
    assert check_int("queues", 1, least=1) == 1
    assert check_choice("permission", 6, (2, 4, 6)) == 6
    assert check_time_ms("begin", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1000
    assert check_seconds("delay", timedelta(milliseconds=1500)) == 1.5


@pytest.mark.parametrize(
    ("value", "told"), [(0, "queues=0: must be at least 1"), (True, "whole number"), ("8", "not a str")]
)
def test_wrong_numbers_are_told(value: object, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        check_int("queues", value, least=1)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (datetime(2026, 1, 1), "has no time zone"),
        (datetime(1900, 1, 1, tzinfo=UTC), "must not be before 1970"),
        (1_764_000_000_000, "not an int"),
    ],
)
def test_wrong_times_are_told(value: object, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        check_time_ms("begin", value)


@pytest.mark.parametrize("value", [-1, float("inf"), 10**400, timedelta(days=400), None, False])
def test_wrong_durations_are_told(value: object) -> None:
    with pytest.raises(InvalidArgumentError, match="timeout_seconds="):
        check_seconds("timeout_seconds", value)


def test_a_wrong_choice_is_told() -> None:
    with pytest.raises(InvalidArgumentError, match="permission=3: must be one of 2, 4, 6"):
        check_choice("permission", 3, (2, 4, 6))
