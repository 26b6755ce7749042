"""Any order of puts, pulls, cleanings, deletions and stops of each kind, compared with lists in memory.

After a power cut only flushed data certainly exists (`tests/support/power_loss.py`).
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmq_broker.clock import system_clocks
from rmq_broker.store.cleaning.cleaner import Cleaner
from rmq_broker.store.cleaning.disk_space import DiskLevel, DiskSpace
from rmq_broker.store.errors import MessageRejected
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.reading.results import GetStatus
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_codec import decode_messages
from tests.support.broker_settings import broker_settings
from tests.support.examples import examples
from tests.support.flush_calls import FlushCall, WriteCall, intercepted_flushes
from tests.support.power_loss import SyncedMemory, cut_power
from tests.support.stores import (
    Clock,
    content_of,
    machine_crashed,
    new_store,
    put,
    put_batch,
    queues_written,
)

LOG_FILE_BYTES = 8192
QUEUE_FILE_BYTES = 10 * 20

topics = st.sampled_from(["TopicA", "TopicB"])
queue_ids = st.integers(0, 1)
tags = st.sampled_from(["", "T1", "T2"])
# Small sizes, and some around the largest that fits a file.
bodies = st.one_of(
    st.binary(max_size=30), st.integers(7900, 8200).map(bytes), st.integers(500, 4000).map(bytes)
)


@dataclass(frozen=True, slots=True)
class Kept:
    body: bytes
    tags: str
    place: int
    stored_ms: int


class FullForAMoment:
    """A disk that is full enough for one log file to be deleted."""

    def __init__(self) -> None:
        self.level = DiskLevel.ENOUGH
        self._levels = [DiskLevel.FORCE]

    def check(self) -> DiskLevel:
        self.level = self._levels.pop() if self._levels else DiskLevel.ENOUGH
        return self.level


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="store-"))
        self.root = self.home / "store"
        self.memory = SyncedMemory(self.root, self.home / "memory")
        self.is_watched = True
        self.flushes = intercepted_flushes(self._flushed, self._mapped, self._written)
        self.flushes.__enter__()
        self.clock = Clock(step_ms=700)
        # All messages since the queue's beginning; messages before the log's begin are deleted.
        self.queues: dict[tuple[str, int], list[Kept]] = {}
        self.log_begin = 0
        self.log_end = 0
        self.certain = 0  # log offset up to which the log is on disk
        self.store = self._opened()

    def teardown(self) -> None:
        self.store.close()
        self.flushes.__exit__(None, None, None)
        self.memory.close()
        shutil.rmtree(self.home)

    def _flushed(self, call: FlushCall) -> bool:
        if self.is_watched:
            self.memory.flushed(call)
        return False

    def _mapped(self, descriptor: int) -> None:
        self.memory.pin(descriptor)

    def _written(self, call: WriteCall) -> None:
        self.memory.written(call)

    def _first(self, kept: list[Kept]) -> int:
        """A queue's first message that is not deleted."""
        return sum(message.place < self.log_begin for message in kept)

    def _opened(self) -> MessageStore:
        store = new_store(
            self.root, log_file_bytes=LOG_FILE_BYTES, queue_file_bytes=QUEUE_FILE_BYTES, clock=self.clock
        )
        store.open()
        return store

    # --- writing ---

    @rule(topic=topics, queue_id=queue_ids, body=bodies, tag=tags)
    def put(self, topic: str, queue_id: int, body: bytes, tag: str) -> None:
        try:
            place, offset = put(self.store, body, topic, queue_id, tags=tag)
        except MessageRejected:
            assert len(body) > LOG_FILE_BYTES - 200
            return
        kept = self.queues.setdefault((topic, queue_id), [])
        assert offset == len(kept)
        assert place >= self.log_end
        self.log_end = self.store.commit_log.max_offset
        kept.append(Kept(body, tag, place, self.clock.now_ms))

    @rule(topic=topics, queue_id=queue_ids, batch=st.lists(st.binary(max_size=40), min_size=1, max_size=35))
    def put_batch(self, topic: str, queue_id: int, batch: list[bytes]) -> None:
        places, offset = put_batch(self.store, batch, topic, queue_id)
        kept = self.queues.setdefault((topic, queue_id), [])
        assert offset == len(kept)
        assert places[0] >= self.log_end
        self.log_end = self.store.commit_log.max_offset
        kept += [Kept(body, "", place, self.clock.now_ms) for body, place in zip(batch, places, strict=True)]

    @rule(topic=topics)
    def delete(self, topic: str) -> None:
        self.store.delete_topics([topic]).result()
        for key in [key for key in self.queues if key[0] == topic]:
            del self.queues[key]

    @rule()
    def roll(self) -> None:
        """Fill the log file except a few bytes."""
        file = self.store.commit_log.current
        if file is not None and file.size - file.wrote > 400:
            self.put("TopicA", 0, bytes(file.size - file.wrote - 200), "")

    @rule()
    def flush(self) -> None:
        self.store.flush()
        self.certain = self.log_end

    @rule()
    def flush_log(self) -> None:
        """Flush the log, as with synchronous flushing."""
        self.store.flush_log()
        self.certain = self.log_end

    @rule()
    def write_queues(self) -> None:
        self.store.queues.write_out()

    @rule()
    def clean(self) -> None:
        """Delete the oldest log file, which was flushed long ago, and the references to it."""
        self.flush()
        settings = broker_settings(storePathRootDir=str(self.root))
        cleaner = Cleaner(
            self.store.commit_log,
            self.store.queues,
            [self.store.index],
            cast(DiskSpace, FullForAMoment()),
            settings,
            system_clocks(),
        )

        async def look() -> None:
            await cleaner.look()
            await cleaner.follow()

        asyncio.run(look())
        self.log_begin = self.store.commit_log.min_offset

    # --- stopping ---

    @rule()
    def restart(self) -> None:
        asyncio.run(self.store.stop())
        self.certain = self.log_end
        self.store = self._opened()

    @rule()
    def killed(self) -> None:
        self._ended_at_once()
        self.store = self._opened()

    @rule()
    def machine_crash(self) -> None:
        """The machine crashes with all pages on disk."""
        self._ended_at_once()
        machine_crashed(self.root)
        self.store = self._opened()

    @rule(seed=st.integers(0, 1 << 16), share_kept=st.sampled_from([0.0, 0.1, 0.5, 0.9]))
    def power_cut(self, seed: int, share_kept: float) -> None:
        """Flushed data exists, and a part of the rest; the log is a prefix of the previous one."""
        self._ended_at_once()
        left = self.home / "left"
        cut_power(self.root, self.home / "memory", left, random.Random(seed), share_kept)
        self.memory.close()
        for folder in (self.root, self.home / "memory"):
            shutil.rmtree(folder)
        left.rename(self.root)
        if (self.root / "rmq_boot_id").exists():
            machine_crashed(self.root)
        self.memory = SyncedMemory(self.root, self.home / "memory")
        self.store = self._opened()
        end = self.store.commit_log.max_offset
        assert self.certain <= end <= self.log_end
        self.certain = self.log_end = end
        self.log_begin = self.store.commit_log.min_offset
        for kept in self.queues.values():
            while kept and kept[-1].place >= end:
                kept.pop()

    def _ended_at_once(self) -> None:
        """Leave the directory in its present state: undo what `close` writes."""
        self.is_watched = False
        before = content_of(self.root)
        self.store.close()
        for name in content_of(self.root).keys() | before.keys():
            path, content = self.root / name, before.get(name)
            if content is None:
                path.unlink()
            elif not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            elif path.read_bytes() != content:
                with path.open("r+b") as file:  # in place: it has to stay the same mapped file
                    file.write(content)
                    file.truncate()
        self.is_watched = True

    @precondition(lambda self: self.log_begin == 0)  # only queues know of deleted messages
    @rule()
    def queues_removed(self) -> None:
        asyncio.run(self.store.stop())
        shutil.rmtree(self.root / "consumequeue", ignore_errors=True)
        self.store = self._opened()

    # --- reading ---

    @rule(topic=topics, queue_id=queue_ids, offset=st.integers(0, 60), count=st.integers(1, 40))
    def get(self, topic: str, queue_id: int, offset: int, count: int) -> None:
        kept = self.queues.get((topic, queue_id), [])
        result = self.store.get(topic, queue_id, offset, count, None)
        if not self._first(kept) <= offset < len(kept):
            assert result.status is not GetStatus.FOUND
            return
        assert result.status is GetStatus.FOUND
        found = decode_messages(result.body, check_crc=True)
        assert 1 <= len(found) == result.count <= min(count, 32)
        assert result.next_offset == offset + len(found)
        for message, expected in zip(found, kept[offset:], strict=False):
            assert (message.body, message.physical_offset) == (expected.body, expected.place)
            assert message.store_timestamp == expected.stored_ms

    @rule(topic=topics, queue_id=queue_ids, tag=tags)
    def get_all_of_a_tag(self, topic: str, queue_id: int, tag: str) -> None:
        kept = self.queues.get((topic, queue_id), [])
        found: list[bytes] = []
        first = offset = self._first(kept)
        while offset < len(kept):
            result = self.store.get(topic, queue_id, offset, 32, frozenset({tags_code(tag)}))
            assert result.next_offset > offset
            found += [message.body for message in decode_messages(result.body)]
            offset = result.next_offset
        assert found == [message.body for message in kept[first:] if message.tags == tag]

    @rule(topic=topics, queue_id=queue_ids, ago_ms=st.integers(-1000, 40_000))
    def offset_by_time(self, topic: str, queue_id: int, ago_ms: int) -> None:
        kept = self.queues.get((topic, queue_id), [])
        time_ms = self.clock.now_ms - ago_ms
        first = self._first(kept)
        before = sum(message.stored_ms < time_ms for message in kept)
        until = sum(message.stored_ms <= time_ms for message in kept)
        assert self.store.offset_by_time(topic, queue_id, time_ms) == max(first, before)
        assert self.store.offset_by_time(topic, queue_id, time_ms, upper=True) == max(first, until - 1)

    @invariant()
    def offsets(self) -> None:
        for topic in ("TopicA", "TopicB"):
            written = [queue_id for queue_id in range(2) if self.queues.get((topic, queue_id))]
            assert queues_written(self.store, topic) == written
            for queue_id in range(2):
                kept = self.queues.get((topic, queue_id), [])
                assert self.store.min_offset(topic, queue_id) == self._first(kept)
                assert self.store.max_offset(topic, queue_id) == len(kept)
        assert self.store.commit_log.max_offset == self.log_end


StoreMachine.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=40)
# Long, because Hypothesis shrinks a failing example before it reports.
test_store = pytest.mark.timeout(examples(600))(StoreMachine.TestCase)
