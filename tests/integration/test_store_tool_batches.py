"""`rmq-store` on directories with queues of batches, as this project's broker writes them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.message import MessageExt
from tests.integration.test_store_tool import rmq_store, verified
from tests.support.broker_requests import request, send, send_batch, sent
from tests.support.brokers import running_broker
from tests.support.own_servers import own_cluster
from tests.support.raw_client import RawClient, raw_client

TOPIC = "Orders"
QUEUES = 3
FILE_BYTES = 20 * 46
SMALL = {
    "mappedFileSizeCommitLog": 64 * 1024,
    "mappedFileSizeConsumeQueue": 400,
    "mapperFileSizeBatchConsumeQueue": FILE_BYTES,
}
# Each time: batches and single messages, in turn.
ROUNDS = 80
SIZES = (1, 7, 0, 2, 30, 0, 0)


async def create(client: RawClient) -> None:
    fields = {
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "readQueueNums": QUEUES,
        "writeQueueNums": QUEUES,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": "+queue.type=BatchCQ",
    }
    answer = await client.ask(request(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def fill(client: RawClient) -> int:
    """Store batches, single messages, and messages of another topic; how many there are in all."""
    messages = 0
    for number in range(ROUNDS):
        queue_id, size = number % QUEUES, SIZES[number % len(SIZES)]
        if size:
            batch = [
                MessageExt(TOPIC, b"%d/%d" % (number, n), properties={"UNIQ_KEY": f"U{number}-{n}"})
                for n in range(size)
            ]
            properties = {"UNIQ_KEY": f"U{number}", "TAGS": f"T{number % 3}", "KEYS": f"K{number}"}
            command = send_batch(TOPIC, batch, properties=properties, queue_id=queue_id)
        else:
            command = send(TOPIC, b"alone", properties={"KEYS": f"K{number}"}, queue_id=queue_id)
        sent(await client.ask(command))
        sent(await client.ask(send("Plain", b"plain", queue_id=queue_id)))
        messages += (size or 1) + 1
    return messages


def content_of(root: Path) -> tuple[dict[Path, bytes], list[bytes]]:
    """All files of queues; those of the index, whose names are the time when they were begun."""
    places = [root / name for name in ("consumequeue", "batchconsumequeue")]
    queues = {path: path.read_bytes() for place in places for path in place.rglob("*") if path.is_file()}
    return queues, [path.read_bytes() for path in sorted((root / "index").iterdir())]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_while_it_runs_and_stopped(tmp_path: Path, flush: str) -> None:
    root = tmp_path / "store"
    async with running_broker(tmp_path, flushDiskType=flush, **SMALL) as broker:
        async with broker.client() as client:
            await create(client)
            messages = await fill(client)
        found = await verified(root)
        assert found["state"]["left"] == "in use by a broker"
        assert found["checked"]["messages"] == messages
    found = await verified(root, "--strict")
    assert found["state"]["left"] == "stopped cleanly"
    assert found["checked"]["messages"] == messages
    assert found["checked"]["batches"] == sum(SIZES[number % len(SIZES)] > 0 for number in range(ROUNDS))
    assert found["checked"]["queue entries"] == 2 * ROUNDS
    assert found["checked"]["queues"] == 2 * QUEUES
    assert len(list((root / "batchconsumequeue" / TOPIC / "0").iterdir())) > 1


async def test_what_is_removed_or_garbled_comes_back(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with running_broker(tmp_path, **SMALL) as broker, broker.client() as client:
        await create(client)
        await fill(client)
    before = content_of(root)
    queue = root / "batchconsumequeue" / TOPIC

    for damage in ("removed", "garbled"):
        if damage == "removed":
            shutil.rmtree(queue / "1")
        else:
            for path in (queue / "2").iterdir():
                path.write_bytes(b"\x11" * FILE_BYTES)
        code, out, _ = await rmq_store("verify", str(root))
        assert code == 1
        assert f"{TOPIC}/{1 if damage == 'removed' else 2}" in out
        code, out, err = await rmq_store("repair", str(root), "--discard")
        assert (code, err) == (0, ""), out
        assert content_of(root) == before
        await verified(root, "--strict")


async def test_killed(tmp_path: Path) -> None:
    settings = {key: str(value) for key, value in SMALL.items()}
    async with own_cluster(settings) as (_, broker):
        async with raw_client(broker.port) as client:
            await create(client)
            messages = await fill(client)
            broker.kill()
        root = shutil.copytree(broker.store_path, tmp_path / "store")
    found = await verified(root)
    assert found["state"]["left"] == "killed"
    assert found["checked"]["messages"] == messages
    # Killed before it wrote out any queue, it left no file whose size could be seen.
    sizes = ("--queue-file-bytes", "400", "--batch-queue-file-bytes", str(FILE_BYTES))
    code, out, err = await rmq_store("repair", str(root), "--discard", "--no-index", *sizes)
    assert (code, err) == (0, ""), out
    found = await verified(root)
    assert not {finding["kind"] for finding in found["findings"]} & {"queue.behind", "queue.missing"}
    # A broker has nothing to put right then.
    async with running_broker(tmp_path, **SMALL) as again:
        ends = [again.store.max_offset(TOPIC, queue_id) for queue_id in range(QUEUES)]
        assert sum(ends) == messages - ROUNDS
    await verified(root, "--strict")
