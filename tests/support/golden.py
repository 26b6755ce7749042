"""Data made with Apache RocketMQ's own classes, under `tests/data`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "data"


def json_file(name: str) -> Any:
    """The content of `tests/data/<name>`."""
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def json_lines(name: str, kind: str | None = None) -> list[dict[str, Any]]:
    """The rows of `tests/data/<name>`; with `kind`, only the rows of that kind."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line]
    if kind is None:
        return rows
    chosen = [row for row in rows if row["kind"] == kind]
    assert chosen, f"no rows of kind {kind!r} in {name}"
    return chosen
