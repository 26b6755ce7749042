"""The table of group filters, by the rules of Apache's ConsumerFilterManager."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rmq_broker.clients.subscription import Subscription
from rmq_broker.filtering.expressions import Expressions
from rmq_broker.filtering.filter_table import ConsumerFilter, ConsumerFilterTable
from rmq_remoting.errors import BodyError
from tests.support.broker_settings import broker_settings
from tests.support.clock import START_MS, Clock
from tests.support.golden import DATA

_GOLDEN = DATA / "protocol" / "config" / "consumerFilter.json"


class _Table(ConsumerFilterTable):
    """A table that counts its changes."""

    def __init__(self, clock: Clock | None = None, *, most_filters: int = 10_000, **keys: object) -> None:
        settings = broker_settings(**keys)
        super().__init__(settings, Expressions(settings), clock or Clock(), most_filters=most_filters)
        self.changes = 0
        self.on_change(self._count_change)

    def _count_change(self) -> None:
        self.changes += 1

    def get(self, topic: str = "T", group: str = "CG") -> ConsumerFilter:
        known = self.find(topic, group)
        assert known is not None
        return known


def _sql(text: str, version: int = 1, topic: str = "T") -> Subscription:
    return Subscription(topic, text, "SQL92", version)


def test_heartbeat_registers_a_filter() -> None:
    table = _Table()
    table.register("CG", [_sql("a > 5"), Subscription("%RETRY%CG"), Subscription("U", "TagA")])
    known = table.get()
    assert (known.expression.text, known.version, known.born_ms, known.is_dead) == (
        "a > 5",
        1,
        START_MS,
        False,
    )
    assert known.expression.matches(b"a\x017\x02")
    assert (len(table), table.changes) == (1, 1)
    assert table.find("U", "CG") is None and table.find("T", "other") is None
    table.register("CG", [_sql("a > 5")])
    assert table.changes == 1


def test_newest_subscription_version_wins() -> None:
    clock = Clock()
    table = _Table(clock)
    table.register("CG", [_sql("a > 5", 10)])
    clock.pass_seconds(1)
    for version in (9, 10):
        table.register("CG", [_sql("a > 6", version)])
        assert table.get().expression.text == "a > 5"
    assert table.changes == 1
    table.register("CG", [_sql("a > 5", 11)])
    assert (table.get().version, table.get().born_ms) == (11, START_MS)
    table.register("CG", [_sql("a > 6", 12)])
    assert (table.get().expression.text, table.get().born_ms) == ("a > 6", START_MS + 1000)


def test_invalid_expression_replaces_the_previous_one() -> None:
    table = _Table()
    table.register("CG", [_sql("a >", 1)])
    assert table.find("T", "CG") is None and len(table) == 0
    table.register("CG", [_sql("a > 5", 1)])
    table.register("CG", [_sql("a > 5)", 2)])
    assert table.find("T", "CG") is None and len(table) == 0
    table.register("CG", [_sql("a > 6", 3)])
    assert table.get().expression.text == "a > 6"


def test_filter_is_kept_for_a_while_after_the_last_subscriber() -> None:
    clock = Clock()
    table = _Table(clock)
    table.register("CG", [_sql("a > 5", 1), _sql("b > 5", 1, "U")])
    table.register("other", [_sql("a > 5", 1)])
    clock.pass_seconds(10)
    table.register("CG", [_sql("a > 5", 1)])  # unsubscribed from U
    assert table.get("U").is_dead and not table.get("T").is_dead
    table.unregister("CG")
    assert table.get("T").is_dead and not table.get("T", "other").is_dead
    changes = table.changes
    table.unregister("CG")
    assert table.changes == changes
    # The same subscription revives the existing filter.
    table.register("CG", [_sql("a > 5", 1)])
    assert not table.get("T").is_dead and table.get("T").born_ms == START_MS
    clock.pass_seconds(24 * 3600 - 1)
    table.forget_dead()
    assert len(table) == 3
    clock.pass_seconds(1)
    table.forget_dead()
    assert len(table) == 2 and table.find("U", "CG") is None


def test_switch_to_tags_marks_the_filter_dead() -> None:
    clock = Clock()
    table = _Table(clock)
    table.register("CG", [_sql("a > 5", 10)])
    for version in (9, 10):
        table.register("CG", [Subscription("T", "*", sub_version=version)])  # not newer
    assert (table.get().is_dead, table.changes) == (False, 1)
    clock.pass_seconds(10)
    for _ in range(2):
        table.register("CG", [Subscription("T", "*", sub_version=20)])
    assert (table.get().is_dead, table.get().dead_ms, table.changes) == (True, START_MS + 10_000, 2)
    table.register("CG", [_sql("a > 5", 30)])
    assert not table.get().is_dead
    table.register("CG", [Subscription("T", "*", sub_version=40)])
    clock.pass_seconds(24 * 3600)
    table.forget_dead()
    assert len(table) == 0


def test_unsubscribed_filter_is_dead_after_clock_step_back() -> None:
    clock = Clock()
    table = _Table(clock)
    table.register("CG", [_sql("a > 5")])
    clock.pass_seconds(-3600)
    table.unregister("CG")
    assert table.get().is_dead
    clock.pass_seconds(25 * 3600)
    table.forget_dead()
    assert len(table) == 0


def test_number_of_dead_filters_is_bounded() -> None:
    table = _Table(most_filters=10)
    table.register("alive", [_sql("a > 5", 1)])
    for number in range(100):
        table.register(f"CG{number}", [_sql("a > 5", 1)])
        table.unregister(f"CG{number}")
        assert len(table) <= 11
    assert not table.get("T", "alive").is_dead


def test_many_filters_in_use_are_not_searched_for_each_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    table, searches = _Table(most_filters=10), 0
    search = table._all

    def counted() -> Iterator[ConsumerFilter]:
        nonlocal searches
        searches += 1
        return search()

    monkeypatch.setattr(table, "_all", counted)
    for number in range(1000):
        table.register(f"CG{number}", [_sql("a > 5", 1)])
    assert (len(table), searches < 30) == (1000, True)


# --- the file ---


def _members(content: bytes) -> Any:
    """Return the content without its times."""

    def plain(members: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: value for name, value in members if name not in ("bornTime", "deadTime")}

    return json.loads(content, object_pairs_hook=plain)


def test_file_has_apaches_format() -> None:
    table = _Table(expectConsumerNumUseFilter=64)
    table.register("CG", [_sql("a > 5 AND b = 'x'", 1700000000001, "TopicFilter")])
    other = [_sql("b = '中\"文' OR c IS NULL", 7, "TopicFilter"), _sql("TRUE", 7, "TopicTwo")]
    table.register("CG_other", other)
    table.unregister("CG_other")
    assert _members(table.encode()) == _members(_GOLDEN.read_bytes())


def test_apaches_file_is_loaded() -> None:
    clock = Clock(1_800_000_000_000)
    table = _Table(clock, expectConsumerNumUseFilter=64)
    table.decode(_GOLDEN.read_bytes())
    assert len(table) == 3
    known = table.get("TopicFilter", "CG")
    assert known.expression.matches(b"a\x017\x02b\x01x\x02")
    # No member has subscribed yet.
    assert known.is_dead and known.dead_ms == clock.now_ms - 30_000
    table.register("CG", [_sql("a > 5 AND b = 'x'", 1700000000001, "TopicFilter")])
    assert not known.is_dead
    again = _Table(clock, expectConsumerNumUseFilter=64)
    again.decode(table.encode())
    assert len(again) == 3


def test_filters_with_another_bit_map_size_are_not_loaded() -> None:
    table = _Table()
    table.decode(_GOLDEN.read_bytes())
    assert len(table) == 0


def test_invalid_stored_expression_is_not_loaded() -> None:
    before = _Table(filterLenient=True)
    before.register("CG", [_sql("a > 5)")])
    table = _Table()
    table.decode(before.encode())
    assert len(table) == 0


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"filterDataByTopic": 5}'])
def test_damaged_file_is_refused(content: bytes) -> None:
    table = _Table()
    table.register("CG", [_sql("a > 5")])
    with pytest.raises(BodyError):
        table.decode(content)
    assert len(table) == 1
