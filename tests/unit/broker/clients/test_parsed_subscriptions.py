"""Subscriptions carried by requests: their cache, and invalid ones."""

from __future__ import annotations

import pytest

from rmq_broker.clients.parsed_subscriptions import ParsedSubscriptions
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError


def test_cache_of_expressions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq_broker.clients.parsed_subscriptions._MAX_REMEMBERED", 10)
    parsed = ParsedSubscriptions()
    for number in range(25):
        parsed.of("T", f"tag-{number}", "TAG")
    assert 0 < len(parsed) <= 10
    assert parsed.of("T", "tag-24", "TAG") is parsed.of("T", "tag-24", "TAG")

    parsed = ParsedSubscriptions()
    assert parsed.of("T", "t" * 10_000, "TAG").tags_set == {"t" * 10_000}
    assert len(parsed) == 0


def test_invalid_expression_is_refused() -> None:
    parsed = ParsedSubscriptions()
    with pytest.raises(CommandError, match="names no tag") as refused:
        parsed.of("T", "||", None)
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert len(parsed) == 0
