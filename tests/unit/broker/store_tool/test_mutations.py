"""Every changed byte of a store's used parts is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_broker.store_tool.index_files import IndexFile, index_paths
from rmq_broker.store_tool.verify import VerifyOptions, verify
from rmq_remoting.message import MessageExt
from tests.support.examples import examples
from tests.unit.broker.store_tool.parts import (
    INDEX_SLOTS,
    StoreWriter,
    finished,
    index_path,
    log_path,
    overwrite,
    rebuild,
)

EXAMPLES = 120
# Checked bytes of a record without its own checksum: size, magic, CRC and queue id; both offsets; flags that
# decide the layout; the higher half of the ports; lengths.
HEAD_COVERED = [*range(16), *range(20, 36), *range(52, 54), *range(68, 70), *range(84, 88)]


class IntactStore:
    """An intact store, of messages with or without a checksum of the record."""

    def __init__(self, folder: Path, *, checksum: bool) -> None:
        self.writer = StoreWriter(folder / "store")
        self.writer.fill(40, checksum=checksum)
        self.writer.put("T" * 200, 0, b"long topic", properties={"KEYS": "v2"}, checksum=checksum)
        self.writer.put("Topic6", 0, b"v6", born_host=("2001:db8::3", 50123), checksum=checksum)
        self.root = finished(self.writer)
        assert verify(self.root, VerifyOptions(jobs=1)).findings == []

    def is_damaged_by(self, path: Path, position: int, bit: int, **options: object) -> bool:
        """Return whether a flipped bit is found, and flip it back."""
        before = path.read_bytes()[position]
        overwrite(path, position, bytes([before ^ 1 << bit]))
        try:
            return not verify(self.root, VerifyOptions(jobs=1, **options)).is_clean  # type: ignore[arg-type]
        finally:
            overwrite(path, position, bytes([before]))

    def place(self, message: MessageExt, position: int) -> tuple[Path, int]:
        """Return file and position of a record's byte."""
        path = log_path(self.root, message.physical_offset)
        return path, message.physical_offset - int(path.name) + position


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory) -> IntactStore:
    return IntactStore(tmp_path_factory.mktemp("summed"), checksum=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> IntactStore:
    return IntactStore(tmp_path_factory.mktemp("plain"), checksum=False)


@given(st.data(), st.integers(0, 7))
@settings(max_examples=examples(EXAMPLES))
def test_any_bit_of_a_record_with_its_own_checksum(
    summed: IntactStore, data: st.DataObject, bit: int
) -> None:
    message = data.draw(st.sampled_from(summed.writer.messages))
    # A property with a changed name is no checksum.
    position = data.draw(
        st.integers(0, message.store_size - 1).filter(lambda at: not -20 <= at - message.store_size < -11)
    )
    assert summed.is_damaged_by(*summed.place(message, position), bit)


@given(st.data(), st.integers(0, 7))
@settings(max_examples=examples(EXAMPLES))
def test_bytes_of_a_record_that_are_checked(plain: IntactStore, data: st.DataObject, bit: int) -> None:
    message = data.draw(st.sampled_from(plain.writer.messages[:40]))
    body_at, topic_at = 88, 88 + len(message.body)
    properties_at = topic_at + 1 + len(message.topic) + 2
    covered = [*HEAD_COVERED, *range(body_at, properties_at)]
    assert plain.is_damaged_by(*plain.place(message, data.draw(st.sampled_from(covered))), bit)


@pytest.mark.parametrize("name", ["UNIQ_KEY", "KEYS", "TAGS"])
@pytest.mark.parametrize("number", [3, 17, 38])
def test_properties_that_queue_or_index_depend_on(plain: IntactStore, name: str, number: int) -> None:
    message = plain.writer.messages[number]
    path, begin = plain.place(message, 0)
    content = path.read_bytes()[begin : begin + message.store_size]
    at = content.index(name.encode() + b"\x01") + len(name) + 1
    for position in (at - len(name) - 1, at):
        assert plain.is_damaged_by(path, begin + position, 0)


def test_the_blank_at_the_end_of_a_file(plain: IntactStore) -> None:
    blank_at = max(
        m.physical_offset + m.store_size for m in plain.writer.messages if m.physical_offset < 4096
    )
    for position in range(blank_at, blank_at + 8):
        assert plain.is_damaged_by(log_path(plain.root), position, position % 8)


@given(st.data(), st.integers(0, 7))
@settings(max_examples=examples(EXAMPLES))
def test_any_bit_of_a_queue_entry(plain: IntactStore, data: st.DataObject, bit: int) -> None:
    message = data.draw(st.sampled_from(plain.writer.messages))
    at = message.queue_offset * 20 + data.draw(st.integers(0, 19))
    folder = plain.root / "consumequeue" / message.topic / str(message.queue_id)
    assert plain.is_damaged_by(folder / f"{at - at % 200:020d}", at % 200, bit)


@given(st.data(), st.integers(0, 7))
@settings(max_examples=examples(EXAMPLES))
def test_any_bit_of_an_index_file(plain: IntactStore, data: st.DataObject, bit: int) -> None:
    path = data.draw(st.sampled_from(index_paths(plain.root / "index")[0]))
    file = IndexFile(path)
    used = list(range(40 + 4 * INDEX_SLOTS))
    first = 40 + 4 * INDEX_SLOTS + 20
    used += range(first, first + 20 * file.entries)
    file.close()
    assert plain.is_damaged_by(path, data.draw(st.sampled_from(used)), bit)


def test_the_number_of_slots_can_be_given(plain: IntactStore) -> None:
    path = index_path(plain.root)
    assert plain.is_damaged_by(path, 39, 0, index_slots=INDEX_SLOTS)
    assert verify(plain.root, VerifyOptions(jobs=1, index_slots=INDEX_SLOTS)).is_clean
    assert not verify(plain.root, VerifyOptions(jobs=1, index_slots=INDEX_SLOTS + 5)).is_clean


@given(st.data())
@settings(max_examples=examples(25))
def test_repair_restores_damaged_files(plain: IntactStore, data: st.DataObject) -> None:
    before = queues_and_index(plain.root)
    paths = data.draw(st.lists(st.sampled_from(sorted(before)), min_size=1, max_size=5, unique=True))
    changes = [
        (data.draw(st.integers(0, len(before[path]) - 1)), data.draw(st.binary(max_size=40)))
        for path in paths
    ]
    for path, (at, content) in zip(paths, changes, strict=True):
        if content or path.parent.name == "index":
            overwrite(path, at, content[: len(before[path]) - at])
        else:
            path.unlink()

    rebuild(plain.root, discard=True)

    assert queues_and_index(plain.root) == before
    assert verify(plain.root, VerifyOptions(jobs=1, strict=True)).findings == []


def queues_and_index(root: Path) -> dict[Path, bytes]:
    folders = (root / "consumequeue", root / "index")
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}
