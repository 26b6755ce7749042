"""Selection of messages by `dump`. (Output: `test_golden.py`, `test_main.py`.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.store_tool.dump import DumpOptions, as_json, as_table_row, delays_of, dump, host_text
from rmq_remoting.compression import CompressionType, compress
from rmq_remoting.message import MessageExt
from tests.unit.broker.store_tool.parts import StoreWriter, finished, log_path, overwrite, queue_path

DELAYS_MS = delays_of(DumpOptions())


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    writer = StoreWriter(tmp_path_factory.mktemp("dump") / "store")
    writer.fill(60)
    finished(writer)
    return writer


def shown(root: Path, **options: object) -> list[int]:
    return [stored.record.physical_offset for stored in dump(root, DumpOptions(**options))]  # type: ignore[arg-type]


def offsets(messages: list[MessageExt]) -> list[int]:
    return [message.physical_offset for message in messages]


def test_all(writer: StoreWriter) -> None:
    assert shown(writer.root) == offsets(writer.messages)


def test_filters(writer: StoreWriter) -> None:
    messages, root = writer.messages, writer.root
    of_queue = [m for m in messages if (m.topic, m.queue_id) == ("Topic1", 1)]
    assert shown(root, topic="Topic1") == offsets([m for m in messages if m.topic == "Topic1"])
    assert shown(root, queue=1) == offsets([m for m in messages if m.queue_id == 1])
    assert shown(root, topic="Topic1", queue=1, from_offset=4) == offsets(of_queue[4:])
    assert shown(root, topic="Topic1", queue=1, from_offset=4, count=3) == offsets(of_queue[4:7])
    assert shown(root, topic="Topic1", queue=1, from_offset=1000) == []
    assert shown(root, topic="none") == []
    assert shown(root, key="K7") == offsets(messages[7:8])
    assert shown(root, key="even") == offsets(messages[::2])
    since, until = messages[33].store_timestamp, messages[40].store_timestamp
    assert shown(root, since_ms=since) == offsets(messages[33:])
    assert shown(root, since_ms=since, until_ms=until) == offsets(messages[33:41])
    assert shown(root, count=2) == offsets(messages[:2])


def test_one_message_by_offset_or_id(writer: StoreWriter) -> None:
    message, root = writer.messages[44], writer.root
    wanted = offsets([message])
    assert shown(root, physical_offset=message.physical_offset) == wanted
    assert shown(root, message_id=message.offset_msg_id) == wanted
    assert shown(root, message_id=message.offset_msg_id.lower()) == wanted
    assert shown(root, message_id=message.properties["UNIQ_KEY"]) == wanted
    assert shown(root, message_id="nothing") == []
    with pytest.raises(ValueError, match="no message at 5 of the log"):
        shown(root, physical_offset=5)


def test_a_damaged_queue_is_not_used(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.fill(60)
    root = finished(writer)
    of_queue = [m for m in writer.messages if (m.topic, m.queue_id) == ("Topic0", 0)]
    entries = queue_path(root, "Topic0").read_bytes()
    overwrite(queue_path(root, "Topic0"), 80, entries[160:180])
    assert shown(root, topic="Topic0", queue=0, from_offset=4) == offsets(of_queue[4:])


def test_damaged_ranges_are_reported_and_skipped(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.fill(30)
    bad = writer.messages[9]
    overwrite(log_path(writer.root, bad.physical_offset), bad.physical_offset % 4096 + 4, b"?")
    problems: list[str] = []
    found = [stored.record.physical_offset for stored in dump(writer.root, DumpOptions(), problems.append)]
    assert found == offsets([m for m in writer.messages if m is not bad])
    (problem,) = problems
    assert problem.startswith(f"log at {bad.physical_offset}: no record begins here")
    assert problem.endswith(f"continuing at {writer.messages[10].physical_offset}")


def test_bodies(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    text = b"a text " * 10
    writer.put(body=text)
    writer.put(body=b"\xff\xfe")
    writer.put(body=compress(text, CompressionType.ZSTD), sys_flag=CompressionType.ZSTD.sys_flag)
    writer.put(body=b"not compressed", sys_flag=CompressionType.LZ4.sys_flag)
    rows = [as_json(stored, DELAYS_MS) for stored in dump(writer.root, DumpOptions(body=True))]
    assert rows[0]["body"] == rows[2]["body"] == text.decode()
    assert rows[1]["bodyBase64"] == "//4="
    assert "bodyProblem" in rows[3]
    tables = [as_table_row(stored) for stored in dump(writer.root, DumpOptions(body=True))]
    assert tables[0].endswith(f"\n    body: {text.decode()}")
    assert tables[1].endswith("\n    bodyBase64: //4=")


def test_control_characters_of_messages_are_not_printed(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.put(body=b"\x1b[2J", properties={"KEYS": "\x1b[2J"})
    (stored,) = dump(writer.root, DumpOptions(body=True))
    assert "\x1b" not in as_table_row(stored)


def test_addresses() -> None:
    assert host_text(bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])) == "10.0.0.1:10911"
    assert host_text(bytes(15) + b"\1" + bytes([0, 0, 0, 80])) == "[::1]:80"
