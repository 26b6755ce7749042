"""`rmq-store` as a process, on the directory of a broker that runs, and after it has stopped."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.support.broker_load import Load
from tests.support.brokers import running_broker

SMALL = {"mappedFileSizeCommitLog": 256 * 1024, "mappedFileSizeConsumeQueue": 2000}


async def rmq_store(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rmq_broker.store_tool.main",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def verified(root: Path, *options: str) -> dict[str, Any]:
    code, out, err = await rmq_store("verify", str(root), "--json", *options)
    found: dict[str, Any] = json.loads(out)
    errors = [finding for finding in found["findings"] if finding["is_error"]]
    assert not errors, json.dumps(errors, indent=1)
    assert (code, err) == (0, "")
    return found


async def test_a_broker_that_runs_and_then_stops(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with running_broker(tmp_path, **SMALL) as broker:
        async with Load(broker.port, connections=2, topics=2) as load:
            await load.until_acknowledged(500)
            before = len(load.acknowledged)
            found = await verified(root)
            assert found["state"]["left"] == "in use by a broker"
            assert found["checked"]["messages"] >= before
            code, _, err = await rmq_store("repair", str(root))
            assert code == 2
            assert "stop that broker first" in err
            # Looking has not taken the broker's lock away.
            assert (await verified(root))["state"]["left"] == "in use by a broker"
        acknowledged = len(load.acknowledged)

    found = await verified(root, "--strict")
    assert found["state"]["left"] == "stopped cleanly"
    assert found["checked"]["messages"] >= acknowledged
    assert found["checked"]["queue entries"] == found["checked"]["messages"]

    code, out, _ = await rmq_store("dump", str(root), "--output", "json", "--topic", "Load0", "--queue", "1")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["queueOffset"] for row in rows] == list(range(len(rows)))

    code, out, _ = await rmq_store("stats", str(root), "--json")
    assert code == 0
    assert (
        sum(topic["messages"] for topic in json.loads(out)["topics"].values()) == found["checked"]["messages"]
    )


async def test_what_was_repaired_is_served(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with (
        running_broker(tmp_path, **SMALL) as broker,
        Load(broker.port, connections=2, topics=2) as load,
    ):
        await load.until_acknowledged(300)
    before = {path: path.read_bytes() for path in (root / "consumequeue").rglob("0*") if path.is_file()}
    for path in before:
        path.write_bytes(b"\xff" * path.stat().st_size)
    assert (await rmq_store("verify", str(root)))[0] == 1

    code, out, err = await rmq_store("repair", str(root), "--discard")

    assert (code, err) == (0, ""), out
    await verified(root, "--strict")
    after = {path: path.read_bytes() for path in (root / "consumequeue").rglob("0*") if path.is_file()}
    assert {path: data.rstrip(b"\0") for path, data in after.items()} == {
        path: data.rstrip(b"\0") for path, data in before.items()
    }
    async with (
        running_broker(tmp_path, **SMALL) as broker,
        Load(broker.port, connections=1, topics=2, acknowledged=load.acknowledged) as more,
    ):
        await more.until_acknowledged(len(load.acknowledged) + 50)
    await verified(root, "--strict")
