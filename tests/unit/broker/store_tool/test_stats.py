"""Figures of `stats`."""

from __future__ import annotations

from pathlib import Path

from rmq_broker.store_tool.stats import statistics
from tests.unit.broker.store_tool.parts import START_MS, StoreWriter, finished, log_path, overwrite


def test_topics_sizes_and_hours(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for size in (10, 10, 300):
        writer.put("Small", body=b"x" * size)
    writer.put("Large", body=b"x" * 2000, step_ms=2 * 3_600_000)
    root = finished(writer)

    found = statistics(root, jobs=1, part_bytes=1000).as_json()

    small, large = writer.messages[:3], writer.messages[3:]
    assert list(found["topics"]) == ["Large", "Small"]
    assert found["topics"]["Small"] == {
        "messages": 3,
        "bytes": sum(message.store_size for message in small),
        "firstStoreTimestamp": START_MS + 700,
        "lastStoreTimestamp": START_MS + 2100,
    }
    assert found["topics"]["Large"]["bytes"] == large[0].store_size
    assert found["messagesBySizeBelow"] == {"128": 2, "512": 1, "4096": 1}
    assert sum(found["bytesByHour"].values()) == sum(message.store_size for message in writer.messages)
    assert len(found["bytesByHour"]) == 2
    assert found["log"] == {"start": 0, "end": writer.end, "damagedPlaces": 0}
    assert {"log", "queues", "config"} <= found["diskBytes"].keys()


def test_the_text_form(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.fill(30)
    bad = writer.messages[9]
    overwrite(log_path(writer.root, bad.physical_offset), bad.physical_offset % 4096 + 4, b"?")

    lines = statistics(writer.root, jobs=1).lines()

    assert "29 messages" in lines[0]
    assert lines[1].startswith("damaged ranges in the log: 1")
    assert any(line.startswith("Topic0") and line.count("2023-11-14 22:13") == 2 for line in lines)
    assert any(line.endswith("#" * 40) for line in lines)


def test_an_empty_store(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    assert statistics(writer.root, jobs=1).lines()[0].endswith(": 0 messages, 0 B of records; log 0 to 0")
