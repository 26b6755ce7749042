"""The delay levels, as they are set."""

from __future__ import annotations

import pytest

from rmq_broker.store.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels, level_of_queue, queue_of_level
from tests.support.broker_settings import broker_settings
from tests.support.rows import each_row


def test_apaches_levels() -> None:
    minute = 60_000
    assert DEFAULT_DELAY_LEVELS.delays_ms == (
        *(1000, 5000, 10_000, 30_000),
        *(minutes * minute for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
    )
    assert DEFAULT_DELAY_LEVELS.highest == 18
    assert broker_settings().delay_levels == DEFAULT_DELAY_LEVELS


def test_levels_and_queues() -> None:
    assert [queue_of_level(level) for level in (1, 18)] == [0, 17]
    assert [level_of_queue(queue_id) for queue_id in (0, 17)] == [1, 18]


def test_every_unit() -> None:
    levels = DelayLevels.parse(" 2s  3m 4h\t5d ")
    assert levels.delays_ms == (2000, 180_000, 14_400_000, 432_000_000)


def test_a_level_above_the_highest_is_the_highest() -> None:
    levels = DelayLevels.parse("1s 9m")
    assert [levels.in_range(level) for level in (1, 2, 3, 99)] == [1, 2, 2, 2]
    assert levels.delay_ms(99) == 540_000


@pytest.mark.parametrize(
    ("wanted_ms", "level"),
    [(0, 2), (1, 2), (1000, 2), (1001, 1), (5000, 1), (5001, 3), (60_000, 3), (60_001, 3)],
)
def test_the_shortest_sufficient_delay(wanted_ms: int, level: int) -> None:
    assert DelayLevels.parse("5s 1s 1m").at_least(wanted_ms) == level


@each_row("text", ["", "  ", "1", "s", "1s5s", "1s,5s", "-1s", "1.5s", "1 s", "1S", "²s", "1w", "1s " * 1001])
def test_invalid_lists_of_delays(text: str) -> None:
    with pytest.raises(ValueError, match="level"):
        DelayLevels.parse(text)
    with pytest.raises(ValueError, match="messageDelayLevel"):
        broker_settings(messageDelayLevel=text)
