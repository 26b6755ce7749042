"""Memory or descriptors run out inside of the store: it tries again, and no two messages get one place."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.store.durability import Durability
from rmq_broker.store.errors import StoreUnavailable
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.queues.consume_queue import ConsumeQueue
from rmq_broker.store_tool.verify import verify
from tests.support.stores import bodies, check_agreement, fill, new_store, opened, put, put_batch
from tests.support.waiting import until

_MESSAGES = 50


def _started(root: Path, **keys: Any) -> MessageStore:
    store = new_store(root, **{"flushIntervalCommitLog": 2, "flushIntervalConsumeQueue": 2, **keys})
    store.open()
    store.start()
    return store


def _fail_once(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: Exception | None = None
) -> list[int]:
    """Let the next call of a method fail, for lack of memory; return a list that grows with each call."""
    calls: list[int] = []
    method = getattr(owner, name)

    def failing(*arguments: object, **keywords: object) -> object:
        calls.append(len(calls))
        if len(calls) == 1:
            raise error or MemoryError
        return method(*arguments, **keywords)

    monkeypatch.setattr(owner, name, failing)
    return calls


def _put_one(store: MessageStore) -> None:
    put(store, b"without an entry", topic="Topic0")


def _put_several(store: MessageStore) -> None:
    put_batch(store, [b"without", b"entries"], topic="Topic0")


@pytest.mark.parametrize("put_it", [_put_one, _put_several])
async def test_a_record_without_entries_stops_the_store(
    tmp_path: Path, put_it: Callable[[MessageStore], None]
) -> None:
    """The next message would get its queue offset. A start makes the entries."""
    store = _started(tmp_path)
    fill(store, _MESSAGES)

    def fail(queue: ConsumeQueue) -> None:
        raise MemoryError

    store.add_arrival_listener(fail)
    with pytest.raises(MemoryError):
        put_it(store)
    with pytest.raises(StoreUnavailable, match="restart the broker"):
        put(store, b"refused", topic="Topic0")
    await store.stop()
    again = opened(tmp_path)
    added = [b"without an entry"] if put_it is _put_one else [b"without", b"entries"]
    assert bodies(again, "Topic0")[_MESSAGES:] == added
    put(again, b"next", topic="Topic0")
    assert bodies(again, "Topic0")[-1] == b"next"
    await again.stop()
    assert check_agreement(tmp_path) == _MESSAGES + len(added) + 1
    assert [finding for finding in verify(tmp_path).findings if finding.is_error] == []


async def test_a_flushed_record_without_entries_stops_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _started(tmp_path, flushDiskType="SYNC_FLUSH")
    fill(store, _MESSAGES)
    await store.durable()
    with monkeypatch.context() as patch:
        _fail_once(patch, type(store.queues.get_or_create("Topic0", 0)), "put")
        put(store, b"without an entry", topic="Topic0")
        put(store, b"behind it", topic="Topic0")
        await until(lambda: store.health.refusal)
    assert "restart the broker" in str(store.health.refusal)
    assert len(bodies(store, "Topic0")) == _MESSAGES
    await store.stop()
    again = opened(tmp_path)
    assert bodies(again, "Topic0")[_MESSAGES:] == [b"without an entry", b"behind it"]
    await again.stop()


_SHORTAGES = pytest.mark.parametrize(
    "error", [MemoryError(), OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENFILE, "the same")]
)


@_SHORTAGES
@pytest.mark.parametrize("part", ["commit_log", "queues"])
async def test_a_flush_without_memory_or_descriptors_is_tried_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: str,
    error: Exception,
) -> None:
    store = _started(tmp_path)
    calls = _fail_once(monkeypatch, type(getattr(store, part)), "flush", error)
    fill(store, _MESSAGES)
    await until(lambda: len(calls) > 1)
    await until(lambda: not store.unflushed_bytes)
    put(store, b"next")
    await store.stop()
    assert store.all_is_flushed
    assert check_agreement(tmp_path) == _MESSAGES + 1
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "flush not possible" in told
    assert ("LimitNOFILE" in told) is isinstance(error, OSError)


async def test_flushing_goes_on_after_its_thread_could_not_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _started(tmp_path)
    error = RuntimeError("can't start new thread")
    starts = _fail_once(monkeypatch, threading.Thread, "start", error)
    await until(lambda: len(starts) > 1)
    fill(store, _MESSAGES)
    await until(lambda: not store.unflushed_bytes)
    await store.stop()
    assert store.all_is_flushed


async def test_a_store_whose_threads_cannot_be_started_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    _fail_once(monkeypatch, threading.Thread, "start", RuntimeError("can't start new thread"))
    with pytest.raises(OSError, match="threads that allocate the commit log cannot be started"):
        store.start()
    store.close()


async def test_entries_without_memory_are_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the checkpoint would count them as written, and a kill would lose them."""
    store = _started(tmp_path)
    queue = store.queues.get_or_create("Topic0", 0)
    calls = _fail_once(monkeypatch, type(queue), "_write")
    fill(store, _MESSAGES)
    await until(lambda: len(calls) > 1)
    await until(lambda: not store.queues.unwritten_bytes)
    store.close()
    again = opened(tmp_path)
    assert len(bodies(again, "Topic0")) == _MESSAGES
    again.close()


@_SHORTAGES
async def test_producers_wait_for_a_flush_that_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    store = _started(tmp_path, flushDiskType="SYNC_FLUSH", flushIntervalCommitLog=100_000)
    calls = _fail_once(monkeypatch, type(store.commit_log), "flush", error)
    put(store, b"x")
    assert await store.durable() is Durability.DURABLE
    assert len(calls) > 1
    assert bodies(store) == [b"x"]
    await store.stop()
