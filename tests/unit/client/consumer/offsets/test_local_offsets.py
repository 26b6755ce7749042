"""Offsets on the local disk: Apache's file, its backup, and damaged files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmq_client import ClientError, UsageError
from rmq_client.consumer.offsets.local_offsets import LocalOffsetStore
from rmq_remoting.bodies.offsets import OffsetSerializeWrapper
from rmq_remoting.message_queue import MessageQueue
from tests.support.waiting import loop_passes

_ONE = MessageQueue("T", "broker-a", 0)
_TWO = MessageQueue("T", "broker-a", 1)

# As Apache's client writes it: with an object as the key, one entry per line.
_APACHES = b"""{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":0,
\t\t\t"topic":"T"
\t\t}:7
\t}
}"""


def _store(folder: Path) -> LocalOffsetStore:
    return LocalOffsetStore(folder, "10.0.0.1@DEFAULT", "g")


async def test_offsets_are_persisted(tmp_path: Path) -> None:
    store = _store(tmp_path)
    assert await store.read(_ONE) is None
    store.advance(_ONE, 5)
    store.advance(_TWO, 6)
    assert await store.commit([_ONE])
    assert store.path == tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json"
    assert OffsetSerializeWrapper.decode(store.path.read_bytes()).offset_table == {_ONE: 5}
    assert await store.commit()
    again = _store(tmp_path)
    assert [await again.read(queue) for queue in (_ONE, _TWO)] == [5, 6]
    again.advance(_ONE, 9)
    await again.commit()
    assert await _store(tmp_path).read(_TWO) == 6, "what this consumer did not touch stays"


async def test_apaches_offsets_file_is_read(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(_APACHES)
    assert await store.read(_ONE) == 7


@pytest.mark.parametrize("damage", [b"", b"{", b'{"offsetTable":[]}', None])
async def test_a_damaged_offsets_file_falls_back_to_its_backup(tmp_path: Path, damage: bytes | None) -> None:
    store = _store(tmp_path)
    for offset in (5, 6):
        store.advance(_ONE, offset)
        await store.commit()
    if damage is None:
        store.path.unlink()
    else:
        store.path.write_bytes(damage)
    assert await _store(tmp_path).read(_ONE) == 5


async def test_two_damaged_offsets_files_raise(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = _store(tmp_path)
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(b"{")
    store.path.with_name("offsets.json.bak").write_bytes(b"[")
    with pytest.raises(UsageError, match="repair the file, or remove it"):
        await store.read(_ONE)
    assert caplog.text == "", "an error that is raised is not logged, too"


async def test_an_unwritable_disk_is_logged_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "10.0.0.1@DEFAULT").write_text("a file where a folder should be")
    store = _store(tmp_path)
    store.advance(_ONE, 5)
    assert not await store.commit()
    assert "offsets not written" in caplog.text
    caplog.clear()
    failures: list[ClientError] = []
    assert not await store.commit(failures=failures)
    assert "not written to" in str(failures[0]) and caplog.text == "", "the caller raises it"


async def test_unchanged_offsets_are_not_written(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.advance(_ONE, 5)
    await store.commit()
    before = store.path.stat().st_ino
    await store.commit()
    assert store.path.stat().st_ino == before
    assert store.commits == 1


async def test_a_cancelled_commit_does_not_disturb_the_next_one(tmp_path: Path) -> None:
    store = _store(tmp_path)
    for offset in range(20):
        store.advance(_ONE, offset)
        cancelled = asyncio.ensure_future(store.commit())
        await loop_passes(offset % 4)
        cancelled.cancel()
        store.advance(_TWO, offset)
        assert await store.commit()
        assert OffsetSerializeWrapper.decode(store.path.read_bytes()).offset_table[_TWO] == offset
