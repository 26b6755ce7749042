"""The store directories that Apache RocketMQ 5.3.3 wrote, under `tests/data/store`.

`clean` was stopped cleanly, `killed` with SIGKILL under load, `damaged` was made from `killed` by hand.
"""

from __future__ import annotations

import json
import lzma
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.golden import DATA, json_lines

NAMES = ("clean", "killed", "damaged")
# The settings of the broker that wrote them.
SETTINGS = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "2000",
    "maxIndexNum": "1000",
    "mappedFileSizeTimerLog": "52000",
}


def unpack(name: str, folder: Path) -> Path:
    """Unpack a directory into `folder`; return the store's path. The timer wheel (38 MB) is sparse."""
    with tarfile.open(DATA / "store" / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


@cache
def manifest(name: str) -> list[dict[str, Any]]:
    """The messages of the directory after it was opened, in physical order."""
    if name == "damaged":
        return manifest("killed")[:-1]
    with lzma.open(DATA / "store" / f"{name}.manifest.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def look_ups(name: str) -> list[dict[str, Any]]:
    """Look-ups in Apache's index: topic, key, phyOffsets; some with begin, end and max."""
    return json_lines(f"store/{name}.index_lookups.jsonl")
