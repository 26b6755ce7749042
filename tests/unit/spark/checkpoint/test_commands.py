"""The checkpoint tool on checkpoints in Spark's format."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_rocketmq.checkpoint import commands
from pyspark_rocketmq.checkpoint.commands import main
from pyspark_rocketmq.running_marks import RunningMark
from tests.support.fake_cluster import BORN_MS, FakeCluster

NOW = 1_800_000_000.0
START = {"T": {"broker-a": {"0": 3, "1": 0}, "gone": {"0": 7}}, "#retired": {"T": {"old": {"0": 9}}}}
QUEUES = ["--broker", "broker-a"]


class Checkpoint:
    """A folder as Spark leaves it, with one source of ours and one of another kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text('{"id":"4711"}')
        self.add(0, {"T": {"broker-a": {"0": 1}}})
        self.add(1, START)

    def add(self, number: int, ours: object, *, ended: bool = True) -> None:
        lines = ["v1", '{"batchWatermarkMs":0}', '{"logOffset":5}', json.dumps(ours)]
        self._write(self.folder / "offsets" / str(number), "\n".join(lines))
        self._write(self.folder / "offsets" / f".{number}.crc", "checksum")
        if ended:
            self._write(self.folder / "commits" / str(number), "v1\n{}")

    def ours(self, number: int = 1) -> Any:
        return json.loads((self.folder / "offsets" / str(number)).read_text().split("\n")[3])

    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.folder)): path.read_text()
            for path in self.folder.rglob("*")
            if path.is_file()
        }

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text)
        os.utime(path, (NOW - 1000, NOW - 1000))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "check")


@pytest.fixture(autouse=True)
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "marks"
    monkeypatch.setattr("pyspark_rocketmq.running_marks.marks_folder", lambda: folder)
    return folder


@pytest.fixture
async def fake() -> AsyncIterator[FakeCluster]:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        for number in range(10):
            cluster.broker.put("T", b"%d" % number)
        yield cluster


def run(*arguments: str) -> int:
    return main(arguments, lambda: NOW)


async def move(fake: FakeCluster, checkpoint: Checkpoint, to: str, *more: str) -> int:
    given = ["move", str(checkpoint.folder), "--namesrv", fake.address, "--to", to, *(more or QUEUES)]
    return await asyncio.to_thread(run, *given)


async def test_lost_messages_are_shown_and_kept(
    fake: FakeCluster, checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint.add(2, {**START, "#lost": 6})
    assert run("show", str(checkpoint.folder)) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "  lost messages: 6"
    assert await move(fake, checkpoint, "latest") == 0
    assert run("drop", str(checkpoint.folder), "--broker", "gone", "--force") == 0
    assert checkpoint.ours(2)["#lost"] == 6


def test_show(checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint.add(2, START, ended=False)
    assert run("show", str(checkpoint.folder)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "query 4711: batch 1 has ended",
        "batch 2 has begun and not ended: a restarted query repeats it",
        "source 1:",
        "  T/broker-a/0 3",
        "  T/broker-a/1 0",
        "  T/gone/0 7",
        "  T/old/0 9 (retired)",
    ]
    assert run("show", checkpoint.folder.as_uri(), "--json", "--broker", "gone") == 0
    assert json.loads(capsys.readouterr().out) == {
        "query": "4711",
        "batch": 1,
        "unfinished": [2],
        "sources": {"1": {"T": {"gone": {"0": 7}}}},
    }


@pytest.mark.parametrize(
    ("to", "first", "second"),
    [
        ("latest", 10, 0),
        ("earliest", 0, 0),
        (str(BORN_MS + 1), 10, 0),
        ("2020-01-01T00:00:00Z", 0, 0),
        ("group:G", 6, 0),
    ],
)
async def test_move(fake: FakeCluster, checkpoint: Checkpoint, to: str, first: int, second: int) -> None:
    fake.broker.offsets["G", "T", 0] = 6
    before = checkpoint.files()
    assert await move(fake, checkpoint, to) == 0
    moved = {"T": {"broker-a": {"0": first, "1": second}, "gone": {"0": 7}}}
    assert checkpoint.ours() == {**moved, "#retired": START["#retired"]}
    lines = (checkpoint.folder / "offsets" / "1").read_text().split("\n")
    assert lines[:3] == ["v1", '{"batchWatermarkMs":0}', '{"logOffset":5}']
    after = checkpoint.files()
    assert "offsets/.1.crc" not in after
    assert "offsets/.0.crc" in after
    (backup,) = (name for name in after if name.startswith("rocketmq-backups/"))
    assert after[backup] == before["offsets/1"]


async def test_move_of_one_queue_to_an_offset(fake: FakeCluster, checkpoint: Checkpoint) -> None:
    assert await move(fake, checkpoint, "offset:8", *QUEUES, "--queue", "0") == 0
    assert checkpoint.ours()["T"]["broker-a"] == {"0": 8, "1": 0}


async def test_impossible_move_changes_nothing(
    fake: FakeCluster, checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    before = checkpoint.files()
    assert await move(fake, checkpoint, "offset:11") == 1
    assert "T/broker-a/0 has messages from 0 to 9: 11 is no offset to continue at" in capsys.readouterr().err
    assert await move(fake, checkpoint, "yesterday") == 1
    assert "must be earliest, latest, group:NAME" in capsys.readouterr().err
    assert await move(fake, checkpoint, "latest", "--topic", "U") == 1
    assert await move(fake, checkpoint, "latest", *QUEUES, "--dry-run") == 0
    assert "T/broker-a/0 3 -> 10" in capsys.readouterr().out
    assert checkpoint.files() == before


def test_drop(checkpoint: Checkpoint) -> None:
    assert run("drop", str(checkpoint.folder), "--broker", "gone") == 0
    assert checkpoint.ours() == {"T": {"broker-a": {"0": 3, "1": 0}}, "#retired": START["#retired"]}
    assert run("drop", str(checkpoint.folder), "--broker", "old", "--force") == 0
    assert checkpoint.ours() == {"T": {"broker-a": {"0": 3, "1": 0}}}


@pytest.mark.parametrize(
    ("more", "said"), [([], "needs --topic"), (["--topic", "T"], "no queue would be left")]
)
def test_drop_of_everything_is_refused(
    checkpoint: Checkpoint, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("drop", str(checkpoint.folder), *more) == 1
    assert said in capsys.readouterr().err


def test_begun_batch_is_discarded_on_request_only(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint.add(2, START, ended=False)
    assert run("drop", str(checkpoint.folder), "--broker", "gone") == 1
    assert "batch 2 has begun and not ended" in capsys.readouterr().err
    assert run("drop", str(checkpoint.folder), "--broker", "gone", "--discard-batch") == 0
    files = checkpoint.files()
    assert not any(name.startswith(("offsets/2", "offsets/.2")) for name in files)
    assert sum(name.startswith("rocketmq-backups/") for name in files) == 2


@pytest.mark.parametrize("at", [-1, 0, 1])
def test_running_query_is_refused(
    checkpoint: Checkpoint, marks: Path, at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint.add(2, {"T": {"broker-a": {"0": 4}}}, ended=False)
    mark = RunningMark(marks)
    mark.update(checkpoint.ours(1 + at))
    try:
        assert run("drop", str(checkpoint.folder), "--broker", "gone", "--discard-batch") == 1
        assert f"process {os.getpid()} reads from this position" in capsys.readouterr().err
    finally:
        mark.close()
    assert run("drop", str(checkpoint.folder), "--broker", "gone", "--discard-batch") == 0


def test_checkpoint_that_has_just_changed_is_refused(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    os.utime(checkpoint.folder / "commits" / "1", (NOW - 20, NOW - 20))
    assert run("drop", str(checkpoint.folder), "--broker", "gone") == 1
    assert "changed 20 s ago" in capsys.readouterr().err
    assert run("drop", str(checkpoint.folder), "--broker", "gone", "--force") == 0


def test_folders_without_offsets_are_refused(
    checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("show", str(tmp_path)) == 1
    assert "is no checkpoint of a streaming query" in capsys.readouterr().err
    assert run("show", str(checkpoint.folder), "--source", "0") == 1
    assert "it has [1]" in capsys.readouterr().err
    offsets = checkpoint.folder / "offsets" / "1"
    offsets.write_text(offsets.read_text().replace("v1", "v9"))
    assert run("show", str(checkpoint.folder)) == 1
    assert "has the format 'v9'" in capsys.readouterr().err
    shutil.rmtree(checkpoint.folder / "commits")
    assert run("show", str(checkpoint.folder)) == 1
    assert "no batch of" in capsys.readouterr().err


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        commands.main(["--help"])
    assert "{show,move,drop}" in capsys.readouterr().out
