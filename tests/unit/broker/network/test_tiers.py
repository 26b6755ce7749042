"""The tiers: their bounds, and fast failure."""

from __future__ import annotations

import pytest

from rmq_broker.network.tiers import Tiers
from tests.support.broker_settings import broker_settings


def test_tiers_have_apaches_bounds() -> None:
    tiers = Tiers.of(broker_settings())
    bounds = {
        tier.name: (tier.capacity, tier.max_wait_ms)
        for tier in (
            tiers.send,
            tiers.pull,
            tiers.lite_pull,
            tiers.pull_cold,
            tiers.heartbeat,
            tiers.client_manager,
            tiers.consumer_manager,
            tiers.admin,
            tiers.admin_reads,
            tiers.query,
        )
    }
    tiers.stop()
    assert bounds == {
        "send": (10_000, 200),
        "pull": (100_000, 5000),
        "lite_pull": (100_000, 5000),
        "pull_cold": (10_000, 5000),
        "heartbeat": (50_000, 31_000),
        "client_manager": (1_000_000, 31_000),
        "consumer_manager": (1_000_000, 5000),
        "admin": (10_000, 5000),
        "admin_reads": (10_000, 5000),
        "query": (20_000, 24 * 3600 * 1000),  # Apache's has no bound
    }


@pytest.mark.parametrize("key", ["brokerFastFailureEnable"])
def test_without_fast_failure_a_wait_has_no_bound(key: str) -> None:
    tiers = Tiers.of(broker_settings(**{key: "false"}))
    tiers.stop()
    assert tiers.send.max_wait_seconds > 3600
    assert tiers.admin_reads.max_wait_seconds > 3600
