"""The store's public face: the rest of the broker reaches no part behind it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmq_broker
from rmq_broker.store import api
from tests.support.stores import opened

_BROKER = Path(rmq_broker.__file__).parent
_OUTSIDE = sorted(path for path in _BROKER.rglob("*.py") if _BROKER / "store" not in path.parents)


@pytest.fixture
def private_parts(tmp_path: Path) -> frozenset[str]:
    """Attributes of a store that hold parts of it, without those whose class is public."""
    store = opened(tmp_path, flushDiskType="SYNC_FLUSH")
    public = [getattr(api, name) for name in api.__all__]
    parts = {
        name for name, part in vars(store).items() if type(part).__module__.startswith("rmq_broker.store.")
    }
    private = frozenset(name for name in parts if type(getattr(store, name)) not in public)
    store.close()
    return private


def _accesses(source: str, names: frozenset[str]) -> Iterator[str]:
    """Iterate over accesses to such an attribute of anything that is called a store."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute) or node.attr not in names:
            continue
        owner = node.value
        name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        if name.endswith("store"):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_nothing_outside_the_store_accesses_its_parts(private_parts: frozenset[str]) -> None:
    assert {"commit_log", "appender", "reader", "index", "health", "commits", "recovery"} <= private_parts
    assert "queues" not in private_parts
    accesses = {
        f"{path.relative_to(_BROKER)} {access}"
        for path in _OUTSIDE
        for access in _accesses(path.read_text(), private_parts)
    }
    assert not accesses, "to be asked of the store by a method of its own"


@pytest.mark.parametrize(
    "line",
    [
        "end = self._store.commit_log.max_offset",
        "log = services.storage.store.commit_log",
        "store.commit_log",
    ],
)
def test_an_access_is_found(line: str) -> None:
    assert len(list(_accesses(line, frozenset({"commit_log"})))) == 1
