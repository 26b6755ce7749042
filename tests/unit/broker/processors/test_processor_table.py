"""The processor table: the request codes that are answered, and their tiers."""

from __future__ import annotations

from pathlib import Path

from rmq_broker.build import build_dispatcher
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.tiers import PoolTier
from tests.support.brokers import broker_configuration

# Request codes that a broker must answer at least.
_CODES = {
    *(10, 310, 320, 11, 361, 14, 15, 29, 30, 31, 32, 34, 35, 38, 46),
    *(17, 21, 25, 26, 28, 200, 201, 202, 203, 204, 207, 215, 351),
    *(12, 33, 208, 303, 315, 317, 321),
    *(41, 42, 222, 223, 300, 307, 308, 309, 314, 343, 345, 353),
}


async def test_required_request_codes_are_registered(tmp_path: Path) -> None:
    dispatcher = await build_dispatcher(broker_configuration(tmp_path))
    assert {row.code for row in dispatcher.registrations()} >= _CODES
    assert not (tmp_path / "store").exists()


async def test_processors_that_read_from_disk_or_encode_long_bodies_run_in_a_pool(tmp_path: Path) -> None:
    dispatcher = await build_dispatcher(broker_configuration(tmp_path))
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
