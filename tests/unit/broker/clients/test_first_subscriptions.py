"""When groups first subscribed to topics, by the end of the commit log."""

from __future__ import annotations

import pytest

from rmq_broker.clients import first_subscriptions
from rmq_broker.clients.first_subscriptions import FirstSubscriptions
from rmq_broker.clients.subscription import Subscription


class _Log:
    def __init__(self) -> None:
        self.end = 0

    def __call__(self) -> int:
        return self.end


def _heard(starts: FirstSubscriptions, group: str, *topics: str) -> None:
    starts.heard(group, [Subscription(topic) for topic in topics])


def test_messages_from_the_first_heartbeat_on_are_newer() -> None:
    log = _Log()
    starts = FirstSubscriptions(log)
    log.end = 100
    _heard(starts, "CG", "T")
    log.end = 300
    _heard(starts, "CG", "T", "U")
    assert starts.is_older("CG", "T", 100)
    assert not starts.is_older("CG", "T", 99)
    assert starts.is_older("CG", "U", 300)
    assert not starts.is_older("CG", "U", 299)


def test_a_group_that_never_subscribed_is_not_older_than_any_message() -> None:
    starts = FirstSubscriptions(_Log())
    _heard(starts, "CG", "T")
    assert not starts.is_older("CG", "Other", 10**12)
    assert not starts.is_older("Other", "T", 10**12)


def test_a_deleted_group_starts_anew() -> None:
    log = _Log()
    starts = FirstSubscriptions(log)
    _heard(starts, "CG", "T")
    _heard(starts, "Other", "T")
    starts.group_removed("CG")
    log.end = 500
    _heard(starts, "CG", "T")
    assert not starts.is_older("CG", "T", 499)
    assert starts.is_older("CG", "T", 500)
    assert starts.is_older("Other", "T", 0)


def test_an_evicted_group_counts_from_its_next_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_subscriptions, "_MAX_ENTRIES", 2)
    log = _Log()
    starts = FirstSubscriptions(log)
    _heard(starts, "CG", "A", "B", "C")
    assert not starts.is_older("CG", "A", 10)
    log.end = 20
    _heard(starts, "CG", "A")
    assert starts.is_older("CG", "A", 20)
    assert not starts.is_older("CG", "A", 19)
