"""Changed bytes in the timer's files of a directory written by Apache RocketMQ."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmq_broker.store_tool.verify import VerifyOptions, verify
from tests.support.golden_store import unpack
from tests.support.rows import each_row
from tests.unit.broker.store_tool.parts import overwrite

LOG = "timerlog/00000000000000000000"
SLOT = 174956 * 32
UNIT = 52


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clean", tmp_path_factory.mktemp("timer"))


@each_row(
    ("name", "position", "content", "kinds"),
    [
        (LOG, 3 * UNIT, struct.pack(">i", 50), {"timer.log", "timer.checkpoint"}),
        (LOG, 3 * UNIT + 4, struct.pack(">q", 999), {"timer.log", "timer.checkpoint"}),
        (LOG, 3 * UNIT + 28, struct.pack(">q", 17), {"timer.log"}),
        (LOG, 3 * UNIT + 28, struct.pack(">q", 0), {"timer.log"}),
        (LOG, 3 * UNIT + 36, struct.pack(">i", 17), {"timer.log"}),
        (LOG, 3 * UNIT + 36, struct.pack(">i", 0), {"timer.checkpoint"}),
        (LOG, 3 * UNIT + 40, struct.pack(">i", 17), {"timer.log"}),
        ("timerwheel", SLOT, struct.pack(">q", 5), {"timer.wheel"}),
        ("timerwheel", SLOT + 8, struct.pack(">q", 104), {"timer.wheel"}),
        ("timerwheel", SLOT + 16, struct.pack(">q", 16 * UNIT), {"timer.wheel"}),
        ("timerwheel", SLOT + 24, struct.pack(">i", -1), {"timer.wheel"}),
        ("config/timercheck", 8, struct.pack(">q", 17 * UNIT), {"timer.checkpoint"}),
        ("config/timercheck", 16, struct.pack(">q", 17), {"timer.checkpoint"}),
        ("config/timercheck", 16, struct.pack(">q", -1), {"timer.checkpoint"}),
    ],
)
def test_changed_bytes_are_found(
    root: Path, name: str, position: int, content: bytes, kinds: set[str]
) -> None:
    path = root / name
    with path.open("rb") as stream:
        stream.seek(position)
        before = stream.read(len(content))
    overwrite(path, position, content)
    try:
        report = verify(root, VerifyOptions(jobs=1))
    finally:
        overwrite(path, position, before)

    assert set(report.kinds) == kinds
    assert report.errors == len(report.findings)
