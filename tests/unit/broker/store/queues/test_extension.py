"""Extension files that Apache's broker wrote: reading, and deletion with their queue."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmq_broker.store.log.mapped_file import file_name
from rmq_broker.store.queues.consume_queues import ConsumeQueues
from rmq_broker.store.queues.extension import ConsumeQueueExt, is_ext_address
from rmq_broker.store.queues.queue_resources import QueueResources

FILE_BYTES = 100
ADDRESS_OF_0 = -(1 << 63)


def unit(tags_code: int, bit_map: bytes = b"") -> bytes:
    """As CqExtUnit writes it."""
    return struct.pack(">hqqh", 20 + len(bit_map), tags_code, 1_700_000_000_000, len(bit_map)) + bit_map


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files: units of 20 and of 28 bytes, the rest of a file marked as empty."""
    folder = tmp_path / "consumequeue_ext" / "TopicA" / "0"
    folder.mkdir(parents=True)
    contents = (
        unit(11) + unit(-12, b"\xff" * 8) + b"\xff\xff",
        unit(13) * 4 + b"\xff\xff",
        unit(17),
    )
    for index, content in enumerate(contents):
        (folder / file_name(index * FILE_BYTES)).write_bytes(content.ljust(FILE_BYTES, b"\0"))
    return folder


@pytest.mark.parametrize(
    ("code", "is_address"),
    [
        (0, False),
        (1_700_000_000_000, False),
        (-(1 << 31), False),
        (-(1 << 31) - 1, True),
        (ADDRESS_OF_0, True),
        (ADDRESS_OF_0 + 20, True),
    ],
)
def test_addresses(code: int, is_address: bool) -> None:
    assert is_ext_address(code) is is_address


def test_the_tags_code_behind_an_address(folder: Path) -> None:
    ext = ConsumeQueueExt(folder, FILE_BYTES, QueueResources())
    expected = {0: 11, 20: -12, 100: 13, 160: 13, 200: 17}
    assert {position: ext.tags_code(ADDRESS_OF_0 + position) for position in expected} == expected


@pytest.mark.parametrize("position", [48, 180, 220, 290, 300, 1 << 40])
def test_an_address_without_a_unit(folder: Path, position: int) -> None:
    assert ConsumeQueueExt(folder, FILE_BYTES, QueueResources()).tags_code(ADDRESS_OF_0 + position) is None


@pytest.fixture
def queues(folder: Path) -> ConsumeQueues:
    """Message n is at 100 * n; the messages have these units' addresses, in order."""
    root = folder.parent.parent.parent / "consumequeue"
    writer = ConsumeQueues(root, 100)
    for number, position in enumerate((0, 20, 100, 120, 140, 160, 200)):
        writer.get_or_create("TopicA", 0).put(number * 100, 100, ADDRESS_OF_0 + position)
    writer.get_or_create("TopicB", 0).put(0, 100, ADDRESS_OF_0)
    writer.close()
    queues = ConsumeQueues(root, 100, ext_file_bytes=FILE_BYTES)
    queues.load()
    return queues


def test_a_queue_knows_its_extension(queues: ConsumeQueues) -> None:
    queue = queues.get_or_create("TopicA", 0)
    entries = [queue.entry(offset) for offset in range(7)]
    codes = [queue.tags_code(entry[2]) for entry in entries if entry is not None]
    assert codes == [11, -12, 13, 13, 13, 13, 17]
    assert queues.get_or_create("TopicB", 0).tags_code(ADDRESS_OF_0) is None


def test_extension_files_are_cleaned_with_the_queue(queues: ConsumeQueues, folder: Path) -> None:
    """Files that end before the first message's unit, as in truncateByMinAddress."""
    queue = queues.get_or_create("TopicA", 0)
    for log_begin, left in [(100, 3), (201, 2), (501, 2), (600, 2)]:
        queue.delete_before(log_begin)
        assert len(list(folder.iterdir())) == left
    assert queue.tags_code(ADDRESS_OF_0 + 200) == 17


def test_extension_files_are_removed_with_their_topic(queues: ConsumeQueues, folder: Path) -> None:
    queues.remove_files(queues.forget_topics(["TopicA"], 0))
    assert not folder.parent.exists()
