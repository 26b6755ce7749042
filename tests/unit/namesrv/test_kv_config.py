"""Key-value configuration and its file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmq_namesrv import kv_config
from rmq_namesrv.kv_config import KvConfig, KvConfigError
from rmq_remoting.daemon.atomic_file import replace_file


async def test_changes_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    first = KvConfig(path)
    first.load()
    await first.put("ORDER_TOPIC_CONFIG", "T", "broker-a:8;broker-b:8")
    assert path.read_text() == '{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:8;broker-b:8"}}}'
    await first.put("n", "k", "ü")
    second = KvConfig(path)
    second.load()
    assert second.get("ORDER_TOPIC_CONFIG", "T") == "broker-a:8;broker-b:8"
    assert second.table("n") == {"k": "ü"}
    await second.delete("n", "k")
    await second.delete("n", "k")
    await second.delete("nowhere", "k")
    third = KvConfig(path)
    third.load()
    assert third.table("n") == {}, "the namespace stays"
    assert third.table("nowhere") is None
    assert third.get("nowhere", "k") is None


async def test_concurrent_changes_share_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []

    def counted(path: Path, content: bytes, *, keep_backup: bool) -> None:
        writes.append(content)
        replace_file(path, content, keep_backup=keep_backup)

    monkeypatch.setattr(kv_config, "replace_file", counted)
    config = KvConfig(tmp_path / "kvConfig.json")
    await asyncio.gather(*(config.put("n", str(number), "v") for number in range(50)))
    assert len(writes) <= 3
    again = KvConfig(tmp_path / "kvConfig.json")
    again.load()
    assert again.table("n") == {str(number): "v" for number in range(50)}


async def test_a_failed_write_is_reported_and_retried_with_the_next_change(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.write_text("a file where a folder should be")
    config = KvConfig(folder / "kvConfig.json")
    with pytest.raises(OSError):
        await config.put("n", "a", "1")
    assert config.get("n", "a") == "1"
    folder.unlink()
    await config.put("n", "b", "2")
    again = KvConfig(folder / "kvConfig.json")
    again.load()
    assert again.table("n") == {"a": "1", "b": "2"}


@pytest.mark.parametrize("content", ["{", "[]", '{"configTable":{"n":7}}'])
def test_a_damaged_file_is_refused_with_a_remedy(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(content)
    with pytest.raises(KvConfigError, match=r"kvConfig\.json cannot be read: .* repair or remove"):
        KvConfig(path).load()


def test_an_empty_table_of_apaches_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("{}")
    config = KvConfig(path)
    config.load()
    assert config.table("n") is None
