"""Bit maps of messages, and their use by filters."""

from __future__ import annotations

from rmq_broker.clients.consumers import ConsumerTable
from rmq_broker.clients.subscription import Subscription
from rmq_broker.filtering.bit_maps import BitMaps
from rmq_broker.filtering.expressions import Expressions
from rmq_broker.filtering.filter_table import ConsumerFilterTable
from rmq_broker.filtering.message_filters import MessageFilters
from rmq_broker.store.api import PropertyFilter
from tests.support.broker_settings import broker_settings
from tests.support.clock import START_MS, Clock


class _Filters:
    def __init__(self) -> None:
        self.settings = broker_settings(enableCalcFilterBitMap=True, enablePropertyFilter=True)
        self.clock = Clock()
        expressions = Expressions(self.settings)
        self.table = ConsumerFilterTable(self.settings, expressions, self.clock)
        self.filters = MessageFilters(
            self.settings, expressions, self.table, ConsumerTable().find_subscription
        )
        self.maps = BitMaps(self.settings, self.table)

    def subscribe(self, group: str, text: str, version: int = 1, topic: str = "T") -> PropertyFilter:
        subscription = Subscription(topic, text, "SQL92", version)
        self.table.register(group, [subscription])
        wanted = self.filters.of_group(group, subscription, 0).properties
        assert wanted is not None
        return wanted


def _may(wanted: PropertyFilter, stored_ms: int, bit_map: bytes) -> bool:
    assert wanted.may_match is not None
    return wanted.may_match(stored_ms, bit_map)


def test_bit_map_of_matching_filters() -> None:
    broker = _Filters()
    low, high = broker.subscribe("low", "a < 5"), broker.subscribe("high", "a > 5")
    later = START_MS + 1
    for raw, low_took, high_took in ((b"a\x013", True, False), (b"a\x017", False, True), (b"", False, False)):
        bit_map = broker.maps.of("T", lambda raw=raw: raw)  # type: ignore[misc]
        assert bit_map is not None and len(bit_map) * 8 == broker.table.bloom.bit_count
        assert (_may(low, later, bit_map), _may(high, later, bit_map)) == (low_took, high_took)
        # Stored before the subscription, or with maps of another size: the map tells nothing.
        assert _may(low, START_MS, bit_map) and _may(high, START_MS, bit_map)
        assert _may(low, later, b"") and _may(high, later, bit_map + b"\0")


def test_no_bit_map_without_filters() -> None:
    broker = _Filters()

    def never() -> bytes:
        raise AssertionError("properties are not asked for")

    assert broker.maps.of("T", never) is None
    for topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"):
        broker.subscribe("CG", "a < 5", topic=topic)
        assert broker.maps.of(topic, never) is None
    broker.subscribe("CG", "a < 5")
    assert broker.maps.of("T", lambda: b"") is not None
    broker.settings.enable_calc_filter_bit_map = False
    assert broker.maps.of("T", never) is None


def test_bit_map_includes_filters_without_subscribers() -> None:
    broker = _Filters()
    wanted = broker.subscribe("CG", "a < 5")
    broker.table.unregister("CG")
    bit_map = broker.maps.of("T", lambda: b"a\x013")
    assert bit_map is not None and _may(wanted, START_MS + 1, bit_map)
    assert any(bit_map)


def test_new_expression_applies_to_later_messages() -> None:
    broker = _Filters()
    before = broker.subscribe("CG", "a < 5")
    broker.clock.pass_seconds(10)
    after = broker.subscribe("CG", "a > 5", 2)
    nothing = bytes(broker.table.bloom.bit_count // 8)
    assert _may(after, START_MS + 10_000, nothing)
    assert not _may(after, START_MS + 10_001, nothing)
    assert after != before
    # The first expression again: the table registers it as a new filter.
    broker.clock.pass_seconds(10)
    assert broker.subscribe("CG", "a < 5", 3) != before


def test_bit_maps_from_before_a_crash_are_ignored() -> None:
    broker = _Filters()
    broker.subscribe("CG", "a < 5")
    broker.clock.pass_seconds(10)
    broker.table.invalidate_bit_maps()
    wanted = broker.subscribe("CG", "a < 5", 2)
    nothing = bytes(broker.table.bloom.bit_count // 8)
    assert _may(wanted, START_MS + 10_000, nothing) and not _may(wanted, START_MS + 10_001, nothing)


def test_subscription_after_clock_step_back_ignores_earlier_bit_maps() -> None:
    broker = _Filters()
    broker.clock.pass_seconds(100)
    assert broker.maps.of("T", lambda: b"") is None
    newest_ms = broker.clock.now_ms
    broker.clock.pass_seconds(-60)
    assert broker.maps.of("T", lambda: b"") is None
    wanted = broker.subscribe("CG", "a < 5")
    nothing = bytes(broker.table.bloom.bit_count // 8)
    assert _may(wanted, newest_ms, nothing)
    assert not _may(wanted, newest_ms + 1, nothing)
    # The same after a restart.
    before, broker = broker.table.encode(), _Filters()
    broker.table.decode(before)
    assert _may(broker.subscribe("CG", "a < 5"), newest_ms, nothing)


def test_newest_store_time_of_earlier_runs_is_respected() -> None:
    broker = _Filters()
    broker.table.stored_until(START_MS + 60_000)
    broker.subscribe("CG", "a < 5")
    broker.table.invalidate_bit_maps()
    wanted = broker.subscribe("CG", "a < 5", 2)
    nothing = bytes(broker.table.bloom.bit_count // 8)
    assert _may(wanted, START_MS + 60_000, nothing) and not _may(wanted, START_MS + 60_001, nothing)
