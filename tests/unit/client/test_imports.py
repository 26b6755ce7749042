"""`import rmq_client` is light: a name is imported at its first use."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rmq_client

# What these load differs from one Python to the next.
_LIGHT = "import __future__, importlib, logging, typing"
_HEAVY = ("asyncio", "concurrent.futures", "orjson", "pydantic", "ssl", "urllib.request", "uvloop")


def _modules_after(program: str) -> set[str]:
    script = f"{program}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_few_modules() -> None:
    loaded = _modules_after("import rmq_client")
    assert loaded - _modules_after(_LIGHT) == {"rmq_client"}
    assert loaded.isdisjoint(_HEAVY)


def test_a_producer_loads_no_consumer_and_no_http() -> None:
    loaded = _modules_after("from rmq_client import Message, Producer")
    assert "rmq_client.producer.producer" in loaded
    assert loaded.isdisjoint({"rmq_client.admin", "rmq_client.consumer.push.push_consumer"})
    assert loaded.isdisjoint(
        {"compression.zstd", "lz4", "zstandard", "uvloop", "urllib.request", "http.client"}
    )


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in rmq_client.__all__ if not hasattr(rmq_client, name)] == []
    assert set(rmq_client.__all__) <= set(dir(rmq_client))


def test_the_imports_for_type_checkers_are_those_of_the_run_time() -> None:
    tree = ast.parse(Path(rmq_client.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    checked = {
        name.name: "." * node.level + (node.module or "")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert checked == rmq_client._MODULES
    assert sorted(checked) == sorted(rmq_client.__all__)


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'rmq_client' has no attribute 'Consumer'"):
        _ = rmq_client.Consumer
