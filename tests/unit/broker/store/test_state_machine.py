"""Any order of puts, pulls, deletions and stops of every kind, against lists in memory."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rmq_broker.store.errors import MessageRejected
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.reader import GetStatus
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_codec import decode_messages
from tests.unit.broker.store.parts import Clock, machine_crashed, new_store, put, put_batch

LOG_FILE_BYTES = 8192
QUEUE_FILE_BYTES = 10 * 20

topics = st.sampled_from(["TopicA", "TopicB"])
queue_ids = st.integers(0, 1)
tags = st.sampled_from(["", "T1", "T2"])
# Small ones, and some around what fits a file.
bodies = st.one_of(
    st.binary(max_size=30), st.integers(7900, 8200).map(bytes), st.integers(500, 4000).map(bytes)
)


@dataclass(frozen=True, slots=True)
class Kept:
    body: bytes
    tags: str
    place: int
    stored_ms: int


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="store-"))
        self.clock = Clock(step_ms=700)
        self.queues: dict[tuple[str, int], list[Kept]] = {}
        self.log_end = 0
        self.store = self._opened()

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.root)

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
        self.store.delete_topics([topic])
        for key in [key for key in self.queues if key[0] == topic]:
            del self.queues[key]

    @rule()
    def flush(self) -> None:
        self.store._flusher.flush()

    # --- stopping; all pages get to the disk ---

    @rule()
    def restart(self) -> None:
        asyncio.run(self.store.stop())
        self.store = self._opened()

    @rule()
    def killed(self) -> None:
        self.store.close()
        self.store = self._opened()

    @rule()
    def machine_crash(self) -> None:
        self.store.close()
        machine_crashed(self.root)
        self.store = self._opened()

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
        if offset >= len(kept):
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
        offset = 0
        while offset < len(kept):
            result = self.store.get(topic, queue_id, offset, 32, frozenset({tags_code(tag)}))
            assert result.next_offset > offset
            found += [message.body for message in decode_messages(result.body)]
            offset = result.next_offset
        assert found == [message.body for message in kept if message.tags == tag]

    @rule(topic=topics, queue_id=queue_ids, ago_ms=st.integers(-1000, 40_000))
    def offset_by_time(self, topic: str, queue_id: int, ago_ms: int) -> None:
        kept = self.queues.get((topic, queue_id), [])
        time_ms = self.clock.now_ms - ago_ms
        before = sum(message.stored_ms < time_ms for message in kept)
        until = sum(message.stored_ms <= time_ms for message in kept)
        assert self.store.offset_by_time(topic, queue_id, time_ms) == before
        assert self.store.offset_by_time(topic, queue_id, time_ms, upper=True) == max(0, until - 1)

    @invariant()
    def offsets(self) -> None:
        for topic in ("TopicA", "TopicB"):
            written = [queue_id for queue_id in range(2) if self.queues.get((topic, queue_id))]
            assert self.store.queues_of(topic) == written
            for queue_id in range(2):
                assert self.store.min_offset(topic, queue_id) == 0
                kept = self.queues.get((topic, queue_id), [])
                assert self.store.max_offset(topic, queue_id) == len(kept)
        assert self.store.commit_log.max_offset == self.log_end


StoreMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
test_store = StoreMachine.TestCase
