"""Statistics of the last minute, hour and day (code 315)."""

from __future__ import annotations

import pytest

from rmq_broker.processors.admin.stats_data import StatsDataProcessor
from rmq_broker.statistics.broker_statistics import BrokerStatistics
from rmq_remoting.bodies.broker_stats import BrokerStatsData, BrokerStatsItem
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError, HeaderError
from tests.support.clock import Clock
from tests.support.peers import Peer
from tests.support.rows import each_row


def _view(name: str, key: str) -> BrokerStatsData:
    """Queried 20 s after 40 messages of 4,000 bytes in all, half of them read with two responses."""
    clock = Clock()
    statistics = BrokerStatistics({"SYSTEM"}, clock)
    topic = statistics.of_topic("T")
    topic.put_messages += 40
    topic.put_bytes += 4000
    group = statistics.of_group("CG", "T")
    group.got_messages += 20
    group.got_bytes += 2000
    group.answers += 2
    statistics.of_topic("SYSTEM").put_messages += 10
    statistics.sent_back.add("CG", "T")
    statistics.dead_letters.add("CG", "T")
    statistics.check_points.add("CG", "T")
    statistics.acknowledgements.add("CG", "T", 8)
    statistics.acknowledgements.add("CG", "T", 2)
    clock.pass_seconds(20)
    processor = StatsDataProcessor(statistics, "DefaultCluster", clock)
    fields = {"statsName": name, "statsKey": key}
    request = RemotingCommand.request(RequestCode.VIEW_BROKER_STATS_DATA, fields)
    return BrokerStatsData.decode(processor.view(Peer().connection, request).body)


@each_row(
    ("name", "key", "total", "per_call"),
    [
        ("TOPIC_PUT_NUMS", "T", 40, 1.0),
        ("TOPIC_PUT_SIZE", "T", 4000, 100.0),
        ("GROUP_GET_NUMS", "T@CG", 20, 10.0),
        ("GROUP_GET_SIZE", "T@CG", 2000, 1000.0),
        ("SNDBCK_PUT_NUMS", "T@CG", 1, 1.0),
        ("DLQ_PUT_NUMS", "T@CG", 1, 1.0),
        ("GROUP_CK_NUMS", "T@CG", 1, 1.0),
        ("GROUP_ACK_NUMS", "T@CG", 10, 5.0),
        ("BROKER_CK_NUMS", "DefaultCluster", 1, 0.0),
        ("BROKER_ACK_NUMS", "DefaultCluster", 10, 0.0),
        ("BROKER_PUT_NUMS", "DefaultCluster", 50, 0.0),
        ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster", 40, 0.0),
        ("BROKER_GET_NUMS", "DefaultCluster", 20, 0.0),
        ("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster", 20, 0.0),
    ],
)
async def test_statistics_by_name(name: str, key: str, total: int, per_call: float) -> None:
    data = _view(name, key)
    expected = BrokerStatsItem(sum=total, tps=total / 20, average_per_call=per_call)
    assert (data.stats_minute, data.stats_hour, data.stats_day) == (expected,) * 3


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "unknown"),
        ("GROUP_GET_NUMS", "T@unknown"),
        ("GROUP_GET_NUMS", "T"),
        ("BROKER_PUT_NUMS", "OtherCluster"),
        ("SNDBCK_PUT_NUMS", "T@CG2"),
        ("SNDBCK2DLQ_TIMES", "null@T@CG@SEND_BACK_TO_DLQ"),
        ("NONSENSE", "DefaultCluster"),
        ("", ""),
    ],
)
async def test_unknown_statistics_are_refused(name: str, key: str) -> None:
    with pytest.raises(CommandError, match=f"no statistic {name} of {key}:") as refusal:
        _view(name, key)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR


async def test_name_and_key_are_needed() -> None:
    processor = StatsDataProcessor(BrokerStatistics(set(), Clock()), "DefaultCluster", Clock())
    with pytest.raises(HeaderError, match="statsKey"):
        request = RemotingCommand.request(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS"})
        processor.view(Peer().connection, request)
