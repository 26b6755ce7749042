"""Parts of the index's tests: a log without files, small index files, and a model of what they hold."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rmq_broker.store.index.batch_keys import BatchKeys
from rmq_broker.store.index.index_file import IndexFile
from rmq_broker.store.index.index_files import KeyQueryResult
from rmq_broker.store.index.message_index import MessageIndex
from rmq_broker.store.log.record import RecordSummary
from rmq_broker.store.queues.consume_queue import QUEUE_ENTRY
from tests.support.broker_settings import broker_settings
from tests.support.clock import START_MS

EVER = 1 << 60
RECORD_BYTES = 100


class FakeLog:
    """Records of 100 bytes each, from `min_offset` on."""

    def __init__(self, begin: int = 0) -> None:
        self.min_offset = begin
        self.max_offset = begin
        self.records: dict[int, RecordSummary] = {}
        self.warmed: list[tuple[int, int]] = []
        self.reads = 0

    def append(
        self, topic: str = "T", unique_key: str = "", keys: str = "", *, sys_flag: int = 0
    ) -> RecordSummary:
        properties = (f"UNIQ_KEY\x01{unique_key}\x02" if unique_key else "") + (
            f"KEYS\x01{keys}\x02" if keys else ""
        )
        offset = self.max_offset
        record = RecordSummary(
            offset, RECORD_BYTES, topic, 0, 0, sys_flag, START_MS + offset, properties.encode()
        )
        self.records[offset] = record
        self.max_offset += RECORD_BYTES
        return record

    def chunk(self, offset: int) -> bytes:
        """Return no bytes: the messages are entered one by one."""
        return b""

    def records_from(self, offset: int) -> Iterator[RecordSummary]:
        while offset < self.max_offset:
            self.reads += 1
            if offset in self.records:
                yield self.records[offset]
            offset += RECORD_BYTES

    def warm(self, offset: int, size: int) -> None:
        self.warmed.append((offset, size))


class Indexed:
    """A store's index and its log, with a model of the appended messages by topic and key."""

    def __init__(self, root: Path, log: FakeLog | None = None, **keys: object) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.log = FakeLog() if log is None else log
        self.model: dict[tuple[str, str], list[int]] = {}
        self.keys = keys
        self.index = self._new()

    def _new(self) -> MessageIndex:
        sizes = {"maxHashSlotNum": 7, "maxIndexNum": 20, "maxMsgsNumBatch": 1000}
        settings = broker_settings(storePathRootDir=str(self.root), **{**sizes, **self.keys})
        return MessageIndex(settings, settings, self.log, lambda: START_MS / 1000)

    def open(self, *, clean: bool = True, same_boot: bool = True, checkpoint_ms: int = 0) -> Indexed:
        self.index = self._new()
        self.index.open(after_clean_stop=clean, same_boot=same_boot, checkpoint_index_ms=checkpoint_ms)
        return self

    def append(self, topic: str = "T", unique_key: str = "", keys: str = "") -> None:
        """Append to the log and enter into the index, as a store does."""
        record = self.log.append(topic, unique_key, keys)
        self.index.put(
            topic, unique_key.encode(), keys.encode(), record.physical_offset, record.store_timestamp_ms
        )
        self.note(topic, unique_key, keys, record.physical_offset)

    def append_batch(self, topic: str, unique_key: str, keys: Sequence[str] | None, count: int) -> None:
        time_ms = 0
        offsets: list[int] = []
        for number in range(count):
            own = "" if keys is None else keys[number]
            record = self.log.append(topic, unique_key, own)
            time_ms = record.store_timestamp_ms = time_ms if offsets else record.store_timestamp_ms
            offsets.append(record.physical_offset)
            self.note(topic, unique_key, own, record.physical_offset)
        if keys is None and unique_key:
            self.index.put_batch(topic, unique_key.encode(), places(offsets), time_ms)
        else:
            texts = keys or [""] * count
            own_properties = [f"KEYS\x01{text}\x02".encode() if text else b"" for text in texts]
            batch = BatchKeys(own_properties, b"", unique_key.encode(), has_keys=keys is not None)
            self.index.put_messages(topic, batch, offsets, time_ms)

    def append_messages(self, topic: str, unique_keys: Sequence[str]) -> None:
        """Append a batch whose messages have unique keys of their own."""
        records = [self.log.append(topic, unique_key) for unique_key in unique_keys]
        for record in records:
            record.store_timestamp_ms = records[0].store_timestamp_ms
        batch = BatchKeys([record.properties for record in records], b"x\x01y\x02", b"", has_keys=False)
        offsets = [record.physical_offset for record in records]
        self.index.put_messages(topic, batch, offsets, records[0].store_timestamp_ms)
        for unique_key, offset in zip(unique_keys, offsets, strict=True):
            self.note(topic, unique_key, "", offset)

    def note(self, topic: str, unique_key: str, keys: str, offset: int) -> None:
        for key in [unique_key, *keys.split(" ")]:
            if key:
                self.model.setdefault((topic, key), []).append(offset)

    def find(self, topic: str, key: str, limit: int = 1000) -> list[int]:
        return self.index.query(topic, key, limit, 0, EVER).offsets

    def check(self) -> None:
        """Every key of the model is found, newest first, and nothing else by it."""
        for (topic, key), offsets in self.model.items():
            assert self.find(topic, key) == offsets[::-1], (topic, key)

    def files(self) -> list[Path]:
        return sorted((self.root / "index").iterdir())


def places(offsets: Iterable[int]) -> bytes:
    """The consume queue entries of messages at these offsets."""
    return b"".join([QUEUE_ENTRY.pack(offset, 100, 0) for offset in offsets])


def answer(
    index: MessageIndex, key: str, *, begin: int = 0, end: int = EVER, limit: int = 1000
) -> KeyQueryResult:
    return index.query("T", key, limit, begin, end)


def unique(number: int) -> str:
    """A unique key as clients make them."""
    return f"0A000003162E18B4AAC2{number // 10:08X}{number & 0xFFFF:04X}"


def unique_of_one_head(number: int, count: int) -> list[str]:
    """Unique keys as a client makes them within a millisecond."""
    return [f"0A000003162E18B4AAC2{number:08X}{counter:04X}" for counter in range(count)]


def check_sound(path: Path, slot_count: int, capacity: int) -> None:
    """The file could have been written by Apache's broker; read without the code under test."""
    data = path.read_bytes()
    begin_ms, end_ms, begin, end, slots_used, count = struct.unpack_from(">qqqqii", data)
    entries = list(struct.iter_unpack(">iqii", data[40 + slot_count * 4 :]))
    assert len(entries) == capacity
    newest: dict[int, int] = {}
    for number, (key_hash, offset, seconds, previous) in enumerate(entries):
        if not 1 <= number < count:
            assert (key_hash, offset, seconds, previous) == (0, 0, 0, 0), number
            continue
        assert key_hash >= 0 and begin <= offset <= end
        assert begin_ms + seconds * 1000 <= end_ms
        assert previous == newest.get(key_hash % slot_count, 0)
        newest[key_hash % slot_count] = number
    slots = struct.unpack_from(f">{slot_count}i", data, 40)
    assert list(slots) == [newest.get(slot, 0) for slot in range(slot_count)]
    assert slots_used == len(newest)
    if count > 1:
        assert (entries[1][1], entries[count - 1][1]) == (begin, end)


def new_file(path: Path, slot_count: int = 7, capacity: int = 20) -> IndexFile:
    """A file ready for entries of messages stored at START_MS and later."""
    file = IndexFile.create(path, slot_count, capacity)
    file.begin(0, START_MS)
    return file
