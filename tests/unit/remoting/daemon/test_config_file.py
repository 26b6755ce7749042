"""Files that follow their state, and what becomes of damaged ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_remoting.daemon.config_file import ConfigFile, ConfigFileError
from rmq_remoting.errors import BodyError
from tests.support.waiting import until


class Note:
    """The simplest state: a text; 'damaged' cannot be read."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.encodings = 0

    def encode(self) -> bytes:
        self.encodings += 1
        return self.text.encode()

    def decode(self, content: bytes) -> None:
        if content == b"damaged":
            raise BodyError("Note: not readable")
        self.text = content.decode()


def _loaded(path: Path) -> str:
    note = Note()
    assert ConfigFile(path, note).load()
    return note.text


async def test_written_state_is_read_back_and_the_previous_content_is_kept(tmp_path: Path) -> None:
    note, path = Note("first"), tmp_path / "config" / "note.json"
    file = ConfigFile(path, note)
    assert not file.load()
    file.changed()
    await file.save()
    note.text = "second"
    file.changed()
    await file.close()
    assert _loaded(path) == "second"
    assert path.with_name("note.json.bak").read_text() == "first"
    assert not list(path.parent.glob("*.tmp"))


async def test_changes_during_a_write_are_written_together(tmp_path: Path) -> None:
    note = Note("0")
    file = ConfigFile(tmp_path / "note.json", note)
    for number in range(1, 51):
        note.text = str(number)
        file.changed()
        if number == 1:
            await until(lambda: note.encodings == 1)
    await file.close()
    assert _loaded(file.path) == "50"
    assert note.encodings <= 3


async def test_unchanged_state_is_not_written(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "note.json", Note())
    await file.save()
    await file.close()
    assert not file.path.exists()


@pytest.mark.virtual_time
async def test_continuous_changes_are_written_at_intervals(tmp_path: Path) -> None:
    note = Note("x")
    file = ConfigFile(tmp_path / "note.json", note, spacing_seconds=1.0)
    for _ in range(100):
        file.changed()
        await asyncio.sleep(0.1)
    assert file.writes <= 11
    await file.close()


@pytest.mark.parametrize("content", ["damaged", "", "  \n"])
async def test_a_damaged_file_is_read_from_its_backup(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "note.json"
    path.write_text(content)
    path.with_name("note.json.bak").write_text("from the backup")
    note = Note()
    file = ConfigFile(path, note)
    with caplog.at_level(logging.WARNING):
        assert file.load()
    assert note.text == "from the backup"
    assert "note.json" in caplog.text and "read from backup backup=note.json.bak" in caplog.text
    # The next write must not put the damaged content in the place of the good backup.
    note.text = "new"
    file.changed()
    await file.close()
    assert path.read_text() == "new"
    assert path.with_name("note.json.bak").read_text() == "from the backup"


def test_a_missing_file_is_read_from_its_backup(tmp_path: Path) -> None:
    (tmp_path / "note.json.bak").write_text("from the backup")
    assert _loaded(tmp_path / "note.json") == "from the backup"


@pytest.mark.parametrize(
    ("main", "backup"), [("damaged", "damaged"), ("damaged", None), ("", None), ("", "")]
)
def test_without_a_readable_file_or_backup_the_start_is_refused(
    tmp_path: Path, main: str, backup: str | None
) -> None:
    path = tmp_path / "note.json"
    path.write_text(main)
    if backup is not None:
        path.with_name("note.json.bak").write_text(backup)
    with pytest.raises(ConfigFileError, match=r"note\.json.*note\.json\.bak.*Restore one of the two"):
        ConfigFile(path, Note()).load()


async def test_a_failed_write_is_logged_counted_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "config"
    folder.write_text("in the way")
    note = Note("text")
    file = ConfigFile(folder / "note.json", note, retry_seconds=0.01)
    with caplog.at_level(logging.ERROR):
        file.changed()
        with pytest.raises(OSError):
            await file.save()
    assert file.failed_writes >= 1
    assert "file not written, retrying" in caplog.text
    folder.unlink()
    await file.save()
    assert _loaded(file.path) == "text"
    await file.close()


async def test_a_state_that_cannot_be_encoded_fails_the_waiting_saves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Note):
        def encode(self) -> bytes:
            raise RuntimeError("no form")

    file = ConfigFile(tmp_path / "note.json", Broken())
    file.changed()
    with pytest.raises(RuntimeError, match="no form"):
        await file.close()


async def test_a_large_state_is_encoded_in_steps_before_it_is_written(tmp_path: Path) -> None:
    note, steps = Note("text"), list[int]()

    def prepare() -> Iterator[None]:
        for number in range(5):
            steps.append(number)
            yield

    file = ConfigFile(tmp_path / "note.json", note, prepare=prepare)
    file.changed()
    for count in range(1, 6):
        await asyncio.sleep(0)
        assert len(steps) == count and not note.encodings, "the loop runs other tasks after each step"
    await file.close()
    assert _loaded(tmp_path / "note.json") == "text"
