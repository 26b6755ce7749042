"""Counts of cold reads by group, thresholds, and how they adapt."""

from __future__ import annotations

import pytest

from rmq_broker.pulling.cold_groups import ColdReadGroups
from rmq_broker.pulling.cold_strategies import PidStrategy, SimpleStrategy
from rmq_broker.settings.cold_data import ColdDataSettings
from rmq_broker.store.api import PullSettings
from tests.support.clock import Clock


class _Table:
    """The table of a broker whose groups may read 100 cold bytes each, and 1,000 together."""

    def __init__(self, **keys: object) -> None:
        self.clock = Clock()
        self.pulls = PullSettings.model_validate({"coldDataFlowControlEnable": "true"})
        self.settings = ColdDataSettings.model_validate(
            {"cgColdReadThreshold": 100, "globalColdReadThreshold": 1000, **keys}
        )
        self.groups = ColdReadGroups(self.pulls, self.settings, self.clock)

    def period(self, **counts: int) -> None:
        """Let groups read cold bytes, and a period end."""
        for group, count in counts.items():
            self.groups.count(group, count)
        self.groups.end_period()


def test_a_group_at_its_threshold_is_over_until_the_period_ends() -> None:
    table = _Table()
    groups = table.groups
    assert not groups.is_over("a")
    groups.count("a", 99)
    assert not groups.is_over("a")
    groups.count("a", 1)
    assert groups.is_over("a")
    assert not groups.is_over("b")
    groups.end_period()
    assert not groups.is_over("a")


def test_all_groups_are_over_where_they_read_too_much_together() -> None:
    table = _Table()
    table.groups.count("a", 999)
    table.groups.count("b", 1)
    assert table.groups.is_over("b")
    assert not table.groups.is_over("a group that reads nothing cold")


def test_nobody_is_over_while_flow_control_is_off() -> None:
    table = _Table()
    table.groups.count("a", 5000)
    table.pulls.cold_data_flow_control_enable = False
    assert not table.groups.is_over("a")


@pytest.mark.parametrize("group", ["TOOLS_CONSUMER", "CID_RMQ_SYS_x", "__MONITOR_CONSUMER"])
def test_groups_of_the_system_are_not_counted(group: str) -> None:
    table = _Table()
    table.groups.count(group, 5000)
    assert not table.groups.is_over(group)
    assert table.groups.info().runtime_table == {}


def test_thresholds_of_groups() -> None:
    table = _Table()
    table.groups.set_thresholds({"a": 500, "none": 0})
    table.groups.count("a", 499)
    table.groups.count("none", 1)
    assert not table.groups.is_over("a")
    assert table.groups.is_over("none")
    table.groups.remove_threshold("a")
    table.groups.remove_threshold("unknown")
    assert table.groups.is_over("a")
    assert table.groups.info().config_table == {"none": 0}


def test_the_information_has_counts_and_times() -> None:
    table = _Table()
    began_ms = table.clock()
    table.groups.count("a", 30)
    table.clock.now_ms += 10
    table.groups.count("a", 12)
    info = table.groups.info()
    account = info.runtime_table["a"]
    assert (account.cold_acc, account.create_time_ms) == (42, began_ms)
    assert account.last_cold_read_time_ms == began_ms + 10
    assert (info.global_acc, info.cg_cold_read_threshold, info.global_cold_read_threshold) == (42, 100, 1000)


def test_a_group_that_reads_nothing_cold_for_a_minute_is_forgotten() -> None:
    table = _Table()
    table.period(a=1)
    table.clock.now_ms += 59_999
    table.groups.end_period()
    assert "a" in table.groups.info().runtime_table
    table.clock.now_ms += 1
    table.groups.end_period()
    assert table.groups.info().runtime_table == {}


def test_a_simple_strategy_raises_thresholds_and_lowers_them_again() -> None:
    table = _Table(coldCtrStrategyEnable="true", usePIDColdCtrStrategy="false")
    table.groups.set_thresholds({"fixed": 50})
    table.period(a=100, b=99, fixed=60)
    assert table.groups.info().config_table == {"fixed": 50, "a||adaptive": 150}
    assert table.groups.threshold("a") == 150
    table.period(a=150)
    assert table.groups.threshold("a") == 225
    table.period(a=500, b=501)  # too much in all
    assert table.groups.threshold("a") == 180
    for _ in range(5):
        table.period(a=500, b=501)
    assert table.groups.threshold("a") == 100  # never below the common threshold


def test_adapted_thresholds_end_with_the_strategy() -> None:
    table = _Table(coldCtrStrategyEnable="true", usePIDColdCtrStrategy="false")
    table.period(a=100)
    table.settings.cold_ctr_strategy_enable = False
    assert table.groups.threshold("a") == 100
    table.groups.end_period()
    assert table.groups.info().config_table == {}


def test_a_strategy_of_ten_periods_waits_for_them() -> None:
    table = _Table(coldCtrStrategyEnable="true")
    for _ in range(9):
        table.period(a=100)
    assert table.groups.info().config_table == {}
    table.period(a=100)
    assert table.groups.threshold("a") == 150


@pytest.mark.parametrize(
    ("totals", "raises", "lowers"),
    [
        ([0] * 9, False, False),
        ([0] * 10, True, False),
        ([2000] * 10, False, True),
        ([800] * 10, False, False),
    ],
)
def test_decisions_of_ten_periods(totals: list[int], raises: bool, lowers: bool) -> None:
    strategy = PidStrategy()
    for total in totals:
        strategy.period_ended(total, 1000)
    assert (strategy.may_raise, strategy.must_lower) == (raises, lowers)


def test_decisions_of_one_period() -> None:
    strategy = SimpleStrategy()
    strategy.period_ended(1000, 1000)
    assert (strategy.may_raise, strategy.must_lower) == (True, False)
    strategy.period_ended(1001, 1000)
    assert strategy.must_lower
