"""The bounded cache: its bounds hold after any sequence of calls, and a hit is the dictionary's own."""

from __future__ import annotations

import sys

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rmq_remoting.bounded_cache import BoundedCache


def cache_of_texts(
    max_entries: int = 4, max_bytes: int = 100, max_entry_bytes: int | None = None
) -> BoundedCache[str, str]:
    return BoundedCache(
        "texts",
        max_entries=max_entries,
        max_bytes=max_bytes,
        size_of=lambda key, value: len(key) + len(value),
        max_entry_bytes=max_entry_bytes,
    )


def test_put_returns_the_value_and_get_finds_it() -> None:
    cache = cache_of_texts()
    assert cache.get("a") is None
    assert cache.put("a", "apple") == "apple"
    assert (cache.get("a"), cache.entries["a"], "a" in cache) == ("apple", "apple", True)
    assert (len(cache), cache.size_bytes, cache.insertions, cache.evictions) == (1, 6, 1, 0)


def test_one_entry_too_many_evicts_all_entries_before_it() -> None:
    cache = cache_of_texts(max_entries=2)
    for key in "abc":
        cache.put(key, "1")
    assert dict(cache.entries) == {"c": "1"}
    assert (cache.size_bytes, cache.insertions, cache.evictions) == (2, 3, 2)


def test_one_byte_too_many_evicts_all_entries_before_it() -> None:
    cache = cache_of_texts(max_bytes=10)
    cache.put("a", "1234")
    cache.put("b", "1234")
    assert (len(cache), cache.size_bytes) == (2, 10), "the bound itself is allowed"
    cache.put("c", "")
    assert (dict(cache.entries), cache.size_bytes, cache.evictions) == ({"c": ""}, 1, 2)


def test_a_replaced_value_gives_its_bytes_back_and_evicts_nothing() -> None:
    cache = cache_of_texts(max_entries=2, max_bytes=10)
    cache.put("a", "123456789")
    cache.put("a", "1")
    cache.put("b", "1")
    cache.put("b", "22")
    assert dict(cache.entries) == {"a": "1", "b": "22"}
    assert (cache.size_bytes, cache.evictions) == (5, 0)


def test_an_entry_over_its_own_bound_is_not_kept_and_its_predecessor_is_dropped() -> None:
    cache = cache_of_texts(max_entry_bytes=5)
    cache.put("a", "1")
    assert cache.put("a", "12345") == "12345"
    assert cache.put("b", "x" * 1000) == "x" * 1000
    assert (len(cache), cache.size_bytes, cache.insertions, cache.evictions) == (0, 0, 1, 0)


def test_get_stays_valid_after_evictions_and_clear() -> None:
    cache = cache_of_texts(max_entries=1)
    get, entries = cache.get, cache.entries
    cache.put("a", "1")
    cache.put("b", "2")
    assert (get("a"), get("b"), dict(entries)) == (None, "2", {"b": "2"})
    cache.clear()
    assert (get("b"), len(entries), cache.size_bytes) == (None, 0, 0)
    assert cache.evictions == 1, "clear is the owner's decision, not an eviction"


def test_discard_gives_the_bytes_back() -> None:
    cache = cache_of_texts()
    cache.put("a", "1")
    cache.discard("a")
    cache.discard("never there")
    assert (len(cache), cache.size_bytes) == (0, 0)


def test_a_hit_runs_no_python_code() -> None:
    cache = cache_of_texts()
    cache.put("a", "1")
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(event) if event == "call" else None)
    try:
        cache.get("a")
    finally:
        sys.setprofile(None)
    assert calls == []


class AnyUse(RuleBasedStateMachine):
    """Whatever is put, dropped and cleared, the bounds hold and the bytes are those of the entries."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = cache_of_texts(max_entries=4, max_bytes=20, max_entry_bytes=12)
        self.latest: dict[str, str] = {}

    @rule(key=st.sampled_from("abcdefgh"), value=st.text("xyz", max_size=14))
    def put(self, key: str, value: str) -> None:
        self.cache.put(key, value)
        self.latest[key] = value

    @rule(key=st.sampled_from("abcdefgh"))
    def discard(self, key: str) -> None:
        self.cache.discard(key)
        self.latest.pop(key, None)

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.latest.clear()

    @invariant()
    def bounds_hold(self) -> None:
        cache = self.cache
        assert len(cache) <= 4
        assert cache.size_bytes == sum(len(key) + len(value) for key, value in cache.entries.items()) <= 20

    @invariant()
    def values_are_the_latest(self) -> None:
        assert self.cache.entries.items() <= self.latest.items()


TestAnyUse = AnyUse.TestCase
