"""Writing extension files: units read back, ends of files, and restarts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rmq_broker.store.queues.consume_queue import QUEUE_ENTRY, ConsumeQueue
from rmq_broker.store.queues.consume_queues import ConsumeQueues
from rmq_broker.store.queues.entry_file import PLACEHOLDER_SIZE
from rmq_broker.store.queues.ext_writer import ExtWriter, MessageBitMap
from rmq_broker.store.queues.extension import ConsumeQueueExt, is_ext_address
from rmq_broker.store.queues.queue_resources import QueueResources

_FILE_BYTES = 100
_ADDRESS_OF_0 = -(1 << 63)


def _files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def test_units_are_read_back_and_files_follow_one_another(tmp_path: Path) -> None:
    """Units of 30 bytes: three fit into 100, with the end mark behind them."""
    resources = QueueResources()
    ext = ConsumeQueueExt(tmp_path, _FILE_BYTES, resources)
    writer = ExtWriter(ext, _FILE_BYTES, resources, 0)
    addresses = []
    for number in range(7):
        address = writer.append(-number, MessageBitMap(1_700_000_000_000 + number, bytes([number]) * 10))
        assert address is not None and is_ext_address(address)
        addresses.append(address - _ADDRESS_OF_0)
        assert ext.unit(address) == (-number, 1_700_000_000_000 + number, bytes([number]) * 10)
    assert addresses == [0, 30, 60, 100, 130, 160, 200]
    assert list(tmp_path.iterdir()) == []  # appending does not wait for the disk
    writer.write_out()
    assert not ext.unwritten
    for number, position in enumerate(addresses):
        unit = ext.unit(_ADDRESS_OF_0 + position)
        assert unit == (-number, 1_700_000_000_000 + number, bytes([number]) * 10)
    assert list(_files(tmp_path).values()) == [100, 100, 100]
    first = (tmp_path / "00000000000000000000").read_bytes()
    assert first[90:94] == b"\xff\xff\0\0"
    writer.flush()


def test_long_maps(tmp_path: Path) -> None:
    resources = QueueResources()
    ext = ConsumeQueueExt(tmp_path, 4096, resources)
    writer = ExtWriter(ext, 4096, resources, 0)
    address = writer.append(5, MessageBitMap(7, b"m" * 1000))
    assert address is not None
    assert ext.unit(address) == (5, 7, b"m" * 1000)
    writer.write_out()
    assert ext.unit(address) == (5, 7, b"m" * 1000)
    assert writer.append(5, MessageBitMap(7, b"m" * 4090)) is None


def test_each_run_begins_a_new_file(tmp_path: Path) -> None:
    for run in range(3):
        queues = _queues(tmp_path)
        queues.load()
        queue = queues.get_or_create("T", 0)
        queue.put(10 + 2 * run, 100, run)
        queues.write_out()
        queues.close()
    assert list(_files(tmp_path / "consumequeue_ext/T/0")) == [
        f"{run * _FILE_BYTES:020d}" for run in range(3)
    ]
    queues = _queues(tmp_path)
    queues.load()
    assert _codes(queues.get_or_create("T", 0)) == [(True, 0), (True, 1), (True, 2)]
    queues.close()


def test_files_without_a_queue_are_removed(tmp_path: Path) -> None:
    """A queue of this name would continue them, although no entry refers to their units."""
    orphan = tmp_path / "consumequeue_ext/T/0"
    orphan.mkdir(parents=True)
    (orphan / f"{0:020d}").write_bytes(bytes(_FILE_BYTES))
    queues = _queues(tmp_path)
    queues.load()
    assert not orphan.exists()


class _BitMaps:
    """Returns bit maps of messages at even log offsets."""

    def __call__(self, topic: str, physical_offset: int, size: int) -> MessageBitMap | None:
        assert size != PLACEHOLDER_SIZE
        return None if physical_offset % 2 else MessageBitMap(physical_offset, b"map")


def _queues(tmp_path: Path) -> ConsumeQueues:
    return ConsumeQueues(tmp_path / "consumequeue", 2000, ext_file_bytes=_FILE_BYTES, bit_map_of=_BitMaps())


def _codes(queue: ConsumeQueue) -> list[tuple[bool, int | None]]:
    entries = queue.entries(0, 100)
    return [(is_ext_address(entry[2]), queue.tags_code(entry[2])) for entry in entries]


def test_a_queue_whose_messages_have_bit_maps(tmp_path: Path) -> None:
    queues = _queues(tmp_path)
    queue = queues.get_or_create("T", 0)
    for physical_offset in (10, 11, 12):
        queue.put(physical_offset, 100, physical_offset * 7)
    queue.put_many(b"".join(QUEUE_ENTRY.pack(offset, 100, offset * 7) for offset in (13, 14)))
    expected = [(True, 70), (False, 77), (True, 84), (False, 91), (True, 98)]
    assert _codes(queue) == expected
    queue.fill_gap(7)
    queue.put(16, 100, 112)
    queues.write_out()
    queues.flush()
    queues.close()

    queues = _queues(tmp_path)
    queues.load()
    found = queues.get("T", 0)
    assert found is not None and found.max_offset == 8
    assert _codes(found) == [*expected, (True, 112)]
    found.put(18, 100, 126)
    assert _codes(found)[-1] == (True, 126)
    # A new topic of the same name begins with new files.
    queues.remove_files(queues.forget_topics(["T"], 0))
    assert not (tmp_path / "consumequeue_ext" / "T").exists()
    again = queues.get_or_create("T", 0)
    again.put(20, 100, 140)
    assert _codes(again) == [(True, 140)]
    queues.close(write_out=False)


def test_a_message_whose_bit_map_fails_is_entered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(topic: str, physical_offset: int, size: int) -> MessageBitMap | None:
        raise RecursionError("too deep")

    queues = ConsumeQueues(tmp_path / "consumequeue", 2000, ext_file_bytes=_FILE_BYTES, bit_map_of=fail)
    queue = queues.get_or_create("T", 0)
    queue.put(10, 100, 70)
    queue.put_many(QUEUE_ENTRY.pack(110, 100, 77))
    assert _codes(queue) == [(False, 70), (False, 77)]
    assert "bit map failed topic=T queue=0 log_offset=10" in caplog.text
    queues.close(write_out=False)


def test_batch_queues_have_no_extension_files(tmp_path: Path) -> None:
    queues = ConsumeQueues(
        tmp_path / "consumequeue", 2000, is_batch=lambda topic: topic == "B", bit_map_of=_BitMaps()
    )
    queue = queues.get_or_create("B", 0)
    queue.put(10, 100, 7, 1, 3)
    assert queue.ext is None
    queues.close(write_out=False)


def test_units_are_written_before_the_entries_that_refer_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = _queues(tmp_path)
    queue = queues.get_or_create("T", 0)
    queue.put(10, 100, 70)
    written: list[str] = []

    def full(descriptor: int, content: bytes, position: int) -> int:
        written.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="no space"):
            queues.write_out()
    assert [path.removeprefix(str(tmp_path)) for path in written] == [f"/consumequeue_ext/T/0/{0:020d}"]
    assert _codes(queue) == [(True, 70)]
    queues.write_out()
    queues.close()
    queues = _queues(tmp_path)
    queues.load()
    assert _codes(queues.get_or_create("T", 0)) == [(True, 70)]
    queues.close()
