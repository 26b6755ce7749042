"""Subscriptions that requests carry: which are kept, and which are refused."""

from __future__ import annotations

import pytest

from rmq_broker.clients.parsed_subscriptions import ParsedSubscriptions
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError


def test_an_expression_is_parsed_once() -> None:
    parsed = ParsedSubscriptions()
    assert parsed.of("T", "a || b", "TAG") is parsed.of("T", "a || b", "TAG")
    assert parsed.of("T", "a || b", "TAG") is not parsed.of("U", "a || b", "TAG")


def test_subscriptions_are_kept_within_bounds() -> None:
    parsed = ParsedSubscriptions()
    (cache,) = parsed.caches
    for number in range(cache.max_entries + 1):
        parsed.of("T", f"tag-{number}", "TAG")
    assert 0 < len(cache) <= cache.max_entries

    parsed = ParsedSubscriptions()
    (cache,) = parsed.caches
    assert parsed.of("T", "t" * 10_000, "TAG").tags_set == {"t" * 10_000}
    assert len(cache) == 0


def test_an_expression_that_cannot_be_parsed_is_refused_and_not_kept() -> None:
    parsed = ParsedSubscriptions()
    with pytest.raises(CommandError, match="names no tag") as refused:
        parsed.of("T", "||", None)
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert len(parsed.caches[0]) == 0
