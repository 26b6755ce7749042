"""Index entries of appended messages are made after the answers, and none is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rmq_broker.store.index.deferred_calls import DeferredCalls
from rmq_broker.store.message_store import MessageStore
from tests.support.clock import START_MS
from tests.support.stores import new_store, opened, put, put_batch
from tests.support.waiting import until


def found(store: MessageStore, key: str) -> int:
    return len(store.index.query("TopicA", key, 10, 0, START_MS * 2).offsets)


def put_key(store: MessageStore, key: str) -> None:
    put(store, properties=b"KEYS\x01%b\x02" % key.encode())


class Later:
    """A `call_soon` whose calls are made by `run`."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def __call__(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def store(tmp_path: Path, later: Later) -> MessageStore:
    """A store whose index entries are made when `later` runs; its index has a file."""
    store = new_store(tmp_path, call_soon=later)
    store.open()
    put_key(store, "first")
    later.run()
    assert store.index.catch_up()
    return store


def test_without_an_event_loop_entries_are_made_with_each_message(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put_key(store, "first")
    assert store.index.catch_up()
    put_key(store, "a")
    assert found(store, "a") == 1
    store.close()


def test_one_call_for_all_messages_of_an_iteration(store: MessageStore, later: Later) -> None:
    for _ in range(3):
        put_key(store, "a")
    put_batch(store, [b"x", b"y"])
    assert len(later.calls) == 1 and found(store, "a") == 0
    later.run()
    assert found(store, "a") == 3
    put_key(store, "a")
    assert len(later.calls) == 1
    later.run()
    assert found(store, "a") == 4
    store.close()


def test_an_error_keeps_no_other_call_from_being_made(later: Later) -> None:
    made: list[int] = []

    def fail() -> None:
        raise RuntimeError("a defect")

    deferred = DeferredCalls(later)
    deferred.add(fail)
    for number in range(2):
        deferred.add(made.append, number)
    with pytest.raises(RuntimeError, match="a defect"):
        later.run()
    later.run()
    assert made == [0, 1]


async def test_a_stop_makes_deferred_entries(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.open()
    store.start()
    put_key(store, "first")
    await until(lambda: found(store, "first") == 1)
    put_key(store, "a")
    await store.stop()
    store = opened(tmp_path)
    assert found(store, "a") == 1 and not store.index.statistics().behind_bytes
    store.close()


def test_entries_made_by_the_catch_up_are_not_repeated(store: MessageStore, later: Later) -> None:
    put_key(store, "a")
    store.index.delete_all()  # rebuilt from the log, which has the message
    assert store.index.catch_up()
    later.run()
    assert found(store, "a") == 1
    store.close()


def test_the_progress_counts_entered_messages_only(store: MessageStore, later: Later, tmp_path: Path) -> None:
    put_key(store, "a")
    store.index.flush()
    progress = json.loads((tmp_path / "rmq_index.json").read_bytes())
    assert progress["complete_to"] == store.commit_log.max_offset
    assert found(store, "a") == 1
    later.run()
    assert found(store, "a") == 1
    store.close()
