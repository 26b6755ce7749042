"""A disk that cannot read some pages: the read fails and names the file, no message is skipped for it.

The kernel ends a read before an unreadable page as it does at the end of a file. (Through a memory map such a
page would kill the process; `docs/durability.md` tells where.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmq_broker.store.index.index_reading import index_file_bytes
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.recovery.stop_marker import StopKind
from tests.support.clock import START_MS
from tests.support.cold_log import make_cold
from tests.support.stores import (
    bodies,
    check_agreement,
    content_of,
    fill,
    log_file,
    machine_crashed,
    opened,
    put,
)
from tests.support.unreadable_pages import PAGE_BYTES, UnreadablePages, unreadable_file

_MESSAGES = 40
_SIZE = 3 * PAGE_BYTES
_TOPIC = "Topic0"
_EVER = 1 << 60


@pytest.fixture
def disk() -> Iterator[UnreadablePages]:
    disk = UnreadablePages()
    with disk.installed():
        yield disk


@pytest.fixture
async def store(tmp_path: Path) -> MessageStore:
    """A store with messages of four pages each, none of them in memory."""
    store = opened(tmp_path)
    for number in range(_MESSAGES):
        put(store, b"%04d" % number * (_SIZE // 4), _TOPIC, properties=b"KEYS\x01k%d\x02" % number)
    await store.stop()
    store = opened(tmp_path)
    make_cold(store)
    return store


def queue_file(root: Path) -> Path:
    return root / "consumequeue" / _TOPIC / "0" / ("0" * 20)


# --- reads of clients ---


def test_a_pull_skips_no_message_that_cannot_be_read(
    tmp_path: Path, store: MessageStore, disk: UnreadablePages
) -> None:
    """Whichever of a message's pages it is. The messages before it are still pulled."""
    everything = bodies(store, _TOPIC)
    queue = store.queues.get(_TOPIC, 0)
    assert queue is not None
    start, size, _ = queue.entries(2, 1)[0]
    for position in range(start + PAGE_BYTES, start + size, PAGE_BYTES):
        disk.repair()
        disk.add(log_file(tmp_path), position)
        assert bodies(store, _TOPIC, last=2) == everything[:2]
        pulled = store.get(_TOPIC, 0, 0, 32, None)
        assert (pulled.count, pulled.next_offset) == (1, 1)
        for count in (1, 2, 32):
            with pytest.raises(OSError, match=rf"Input/output error: '{log_file(tmp_path)}'"):
                store.get(_TOPIC, 0, 2, count, None)
    disk.repair()
    assert bodies(store, _TOPIC) == everything


def test_a_pull_whose_queue_entries_cannot_be_read_fails(
    tmp_path: Path, store: MessageStore, disk: UnreadablePages
) -> None:
    disk.add(queue_file(tmp_path))
    for read in (
        lambda: store.get(_TOPIC, 0, 0, 1, None),
        lambda: store.queue_entries(_TOPIC, 0, 0, 32),
        lambda: store.offset_by_time(_TOPIC, 0, START_MS + 3),
        lambda: store.earliest_store_time(_TOPIC, 0),
    ):
        with pytest.raises(OSError, match=rf"Input/output error: '{queue_file(tmp_path)}'"):
            read()
    assert store.get(_TOPIC, 0, _MESSAGES - 1, 1, None).count == 1  # its entry is in memory


async def test_an_entry_with_one_readable_page_is_not_reported_missing(
    tmp_path: Path, disk: UnreadablePages
) -> None:
    """Its consumer would wait for a message that is there."""
    store = opened(tmp_path)
    fill(store, 290)
    await store.stop()
    store = opened(tmp_path)
    disk.add(queue_file(tmp_path), PAGE_BYTES)
    first = PAGE_BYTES // 20
    assert store.get(_TOPIC, 0, first - 1, 1, None).count == 1
    with pytest.raises(OSError, match="Input/output error"):
        store.get(_TOPIC, 0, first, 1, None)
    store.close()


def test_a_message_that_cannot_be_read_is_not_reported_missing(
    tmp_path: Path, store: MessageStore, disk: UnreadablePages
) -> None:
    """Neither by its offset, nor by its key, nor by its store time."""
    physical_offset = store.query_by_key(_TOPIC, "k1", 32, 0, _EVER).offsets[0]
    for position in (physical_offset, physical_offset + _SIZE):
        disk.repair()
        disk.add(log_file(tmp_path), position)
        with pytest.raises(OSError, match=rf"Input/output error: '{log_file(tmp_path)}'"):
            store.record_at(physical_offset)
    disk.add(log_file(tmp_path), physical_offset)
    with pytest.raises(OSError, match="Input/output error"):
        store.store_time_at(_TOPIC, 0, 1)


def test_a_query_by_key_that_cannot_read_the_index_fails(
    tmp_path: Path, store: MessageStore, disk: UnreadablePages
) -> None:
    (path,) = [path for path in (tmp_path / "index").iterdir() if path.name.isdecimal()]
    for position in range(0, index_file_bytes(1000, _MESSAGES), PAGE_BYTES):
        disk.add(path, position)
    with pytest.raises(OSError, match=rf"Input/output error: '{path}'"):
        store.query_by_key(_TOPIC, "k1", 32, 0, _EVER)
    disk.repair()
    assert len(store.query_by_key(_TOPIC, "k1", 32, 0, _EVER).offsets) == 1


# --- the start ---


@pytest.mark.parametrize("stop", [StopKind.PROCESS_KILLED, StopKind.MACHINE_CRASHED])
def test_a_start_that_cannot_read_the_log_names_the_file(
    tmp_path: Path, disk: UnreadablePages, stop: StopKind
) -> None:
    """It changes nothing, and succeeds once the disk can be read."""
    store = opened(tmp_path)
    fill(store, 60, size=2000)
    fill(store, 1, size=20_000)
    log_end = store.commit_log.max_offset
    store.close()
    if stop is StopKind.MACHINE_CRASHED:
        machine_crashed(tmp_path)
    files = sorted((tmp_path / "commitlog").iterdir())
    file_bytes = files[0].stat().st_size
    for position in range(0, log_end, 3 * PAGE_BYTES):
        path = files[position // file_bytes]
        disk.add(path, position % file_bytes)
        before = content_of(tmp_path)
        with pytest.raises(OSError, match=rf"Input/output error: '{path}'"):
            opened(tmp_path)
        after = content_of(tmp_path)
        assert {name: after[name] for name in before if "commitlog" in name} == {
            name: content for name, content in before.items() if "commitlog" in name
        }
        disk.repair()
    # A page behind the end of the log is not needed.
    disk.add(files[-1], file_bytes - 1)
    opened(tmp_path).close()
    assert disk.met > 5
    assert check_agreement(tmp_path) == 61


@pytest.mark.parametrize("name", ["checkpoint", "rmq_checkpoint", "rmq_queues.json", "rmq_boot_id"])
def test_a_start_that_cannot_read_a_small_file_names_it(tmp_path: Path, name: str) -> None:
    store = opened(tmp_path)
    fill(store, 50)
    store.flush()
    store.queue_state.note_deleted({"Gone": 0}, 0)
    store.close()
    with unreadable_file(tmp_path / name), pytest.raises(OSError, match=rf"Input/output error: '.*{name}'"):
        opened(tmp_path)
    opened(tmp_path).close()
    assert check_agreement(tmp_path) == 50


async def test_a_start_that_cannot_read_a_queue_names_the_file(tmp_path: Path, disk: UnreadablePages) -> None:
    """Without the file, the queue is rebuilt from the log."""
    store = opened(tmp_path)
    fill(store, 50)
    await store.stop()
    disk.add(queue_file(tmp_path))
    with pytest.raises(OSError, match=rf"Input/output error: '{queue_file(tmp_path)}'"):
        opened(tmp_path)
    queue_file(tmp_path).unlink()
    await opened(tmp_path).stop()
    assert check_agreement(tmp_path) == 50


@pytest.mark.parametrize("which", ["progress", "header", "entries"])
async def test_an_index_that_cannot_be_read_is_rebuilt(
    tmp_path: Path, disk: UnreadablePages, which: str
) -> None:
    store = opened(tmp_path)
    for number in range(300):
        put(store, b"", _TOPIC, properties=b"KEYS\x01k%d\x02" % number)
    await store.stop()
    (path,) = [path for path in (tmp_path / "index").iterdir() if path.name.isdecimal()]
    if which == "progress":
        with unreadable_file(tmp_path / "rmq_index.json"):
            store = opened(tmp_path)
    else:
        disk.add(path, 0 if which == "header" else 40 + 4000 + 20)
        store = opened(tmp_path)
    disk.repair()
    assert store.index.catch_up()
    for number in range(300):
        assert len(store.query_by_key(_TOPIC, f"k{number}", 32, 0, _EVER).offsets) == 1
    await store.stop()


# --- cleaning ---


async def test_a_queue_that_cannot_be_read_is_cleaned_later(tmp_path: Path, disk: UnreadablePages) -> None:
    """Its first offset stays as it is."""
    store = opened(tmp_path)
    fill(store, 1200)
    await store.stop()
    store = opened(tmp_path)
    queue = store.queues.get(_TOPIC, 0)
    assert queue is not None
    entry = queue.entry(700)
    assert entry is not None
    clean: list[Callable[[], object]] = [
        lambda: queue.advance_min(entry[0]),
        lambda: queue.delete_before(entry[0]),
    ]
    for path in sorted(queue_file(tmp_path).parent.iterdir()):
        disk.add(path)
        disk.add(path, PAGE_BYTES)
    for each in clean:
        with pytest.raises(OSError, match=r"Input/output error: '.*consumequeue"):
            each()
        assert queue.min_offset == 0
    disk.repair()
    assert [each() for each in clean] == [None, 2]
    assert queue.min_offset == 700
    store.close()
