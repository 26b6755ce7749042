"""Tests of each compression, without LZ4 where its package is missing: the extra has none for Python 3.15."""

from __future__ import annotations

import importlib.util
from typing import Any, Final

import pytest

from rmq_remoting.compression import CompressionType

HAS_LZ4: Final = importlib.util.find_spec("lz4") is not None
needs_lz4 = pytest.mark.skipif(not HAS_LZ4, reason="the package lz4 is not installed")
COMPRESSIONS: Final = [
    pytest.param(kind, marks=needs_lz4 if kind is CompressionType.LZ4 else (), id=kind.name)
    for kind in CompressionType
]


def readable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return golden rows; those with LZ4 only if its package is installed."""
    return [row for row in rows if HAS_LZ4 or "lz4" not in row["name"]]
