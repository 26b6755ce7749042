"""The processor table: which codes are answered, in which tier, with which bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.broker import dispatcher_of
from rmq_broker.processor_table import Tiers
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.dispatch import PoolTier
from tests.support.brokers import broker_configuration
from tests.unit.broker.parts import broker_settings

# What is asked for of a broker's first part; more is welcome.
_CODES = {
    *(10, 310, 320, 11, 361, 14, 15, 29, 30, 31, 32, 34, 35, 38, 46),
    *(17, 21, 25, 26, 28, 200, 201, 202, 203, 204, 207, 215, 351),
    *(12, 33, 208, 303, 315, 317, 321),
    *(41, 42, 222, 223, 300, 307, 308, 309, 314, 343, 345, 353),
}


async def test_every_code_that_is_asked_for_is_answered(tmp_path: Path) -> None:
    dispatcher = await dispatcher_of(broker_configuration(tmp_path))
    assert {row.code for row in dispatcher.registrations()} >= _CODES
    assert not (tmp_path / "store").exists()


async def test_what_reads_from_disk_or_writes_long_bodies_runs_in_a_pool(tmp_path: Path) -> None:
    dispatcher = await dispatcher_of(broker_configuration(tmp_path))
    pooled = {row.code for row in dispatcher.registrations() if isinstance(row.tier, PoolTier)}
    assert {
        Code.SEARCH_OFFSET_BY_TIMESTAMP,
        Code.GET_EARLIEST_MSG_STORETIME,
        Code.GET_TOPIC_STATS_INFO,
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.QUERY_MESSAGE,
        Code.VIEW_MESSAGE_BY_ID,
        Code.QUERY_CONSUME_QUEUE,
        Code.GET_CONSUME_STATS,
        Code.QUERY_CONSUME_TIME_SPAN,
        Code.GET_BROKER_CONSUME_STATS,
    } <= pooled
    # What changes state belongs to the loop.
    changing = {Code.SEND_MESSAGE, Code.HEART_BEAT, Code.UPDATE_CONSUMER_OFFSET, Code.DELETE_TOPIC_IN_BROKER}
    assert not changing & pooled


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
    tiers.admin_reads.stop()
    tiers.query.stop()
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
    tiers.admin_reads.stop()
    tiers.query.stop()
    assert tiers.send.max_wait_seconds > 3600
    assert tiers.admin_reads.max_wait_seconds > 3600
