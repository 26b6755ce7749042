"""Cleaning, as clients and administrators see it: a disk that fills up and empties, old files, old topics."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from rmq_broker.store.cleaning.disk_space import DiskLevel
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.broker_requests import create_topic, offsets, pull, pulled, request, send, sent
from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient
from tests.support.small_disk import small_disk
from tests.support.waiting import until

_LOG_FILE_BYTES = 256 * 1024
_BODY_BYTES = 8000
_BALLAST_BYTES = 9 << 20
# The levels of an operator with a small disk, all that is timed as often as can be.
_SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": _LOG_FILE_BYTES,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "diskSpaceWarningLevelRatio": 90,
    "diskSpaceCleanForciblyRatio": 85,
    "cleanResourceInterval": 10,
    "flushIntervalCommitLog": 10,
    "flushIntervalConsumeQueue": 10,
    "deleteCommitLogFilesInterval": 0,
    "deleteConsumeQueueFilesInterval": 0,
    "autoCreateTopicEnable": False,
}

# However full the disk is that the tests run on.
_ROOMY = _SETTINGS | {
    "diskSpaceWarningLevelRatio": 99,
    "diskSpaceCleanForciblyRatio": 99,
    "diskMaxUsedSpaceRatio": 99,
}


@pytest.fixture
def disk_folder(tmp_path: Path) -> Iterator[Path]:
    """A file system of 10 MiB, where this process may mount one."""
    with small_disk(tmp_path / "disk", 10) as folder:
        yield folder


class Topic:
    """One queue, and what the broker has acknowledged of it."""

    def __init__(self, name: str = "Filled") -> None:
        self.name = name
        self.bodies: dict[int, bytes] = {}
        self.position = 0  # of a slow consumer
        self.moves = 0

    async def create(self, client: RawClient) -> None:
        assert (await client.ask(create_topic(self.name, 1))).code == ResponseCode.SUCCESS

    async def send(self, client: RawClient) -> str | None:
        """Send a message; why it was refused, None where it was not."""
        body = (b"%08d " % len(self.bodies)).ljust(_BODY_BYTES, b"x")
        answer = await client.ask(send(self.name, body))
        if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            return str(answer.remark)
        header = sent(answer)
        assert header.queue_offset == len(self.bodies), "no offset is skipped or used twice"
        self.bodies[header.queue_offset] = body
        return None

    async def consume(self, client: RawClient) -> None:
        """Let the slow consumer go on by one message, or to where it is told to go on."""
        answer = await client.ask(pull(self.name, offset=self.position, count=1))
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return  # the queue's file went while it was read; the next pull is told to go on
        if answer.code == ResponseCode.SUCCESS:
            (message,) = pulled(answer)
            assert message.queue_offset == self.position
            assert message.body == self.bodies[self.position]
        else:
            # The second: its message went this moment, the queue has not heard of it yet.
            assert answer.code in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY)
            assert offsets(answer)[0] > self.position
            self.moves += 1
        self.position = offsets(answer)[0]

    async def offset(self, client: RawClient, code: RequestCode) -> int:
        answer = await client.ask(request(code, topic=self.name, queueId=0))
        return int(answer.ext_fields["offset"])

    async def check(self, client: RawClient) -> int:
        """A consumer that was at 0 is told where to go on, and gets all that is left; how many are not."""
        lowest = await self.offset(client, RequestCode.GET_MIN_OFFSET)
        assert await self.offset(client, RequestCode.GET_MAX_OFFSET) == len(self.bodies)
        next_offset = 0
        if lowest:
            moved = await client.ask(pull(self.name, offset=0))
            assert moved.code == ResponseCode.PULL_OFFSET_MOVED, f"{moved.code}: {moved.remark}"
            assert offsets(moved) == (lowest, lowest, len(self.bodies))
            next_offset = lowest
        while next_offset < len(self.bodies):
            answer = await client.ask(pull(self.name, offset=next_offset))
            for message in pulled(answer):
                assert message.queue_offset == next_offset
                assert message.body == self.bodies[next_offset]
                next_offset += 1
        return lowest


def _log_begins(store: Path) -> int:
    return min(int(path.name) for path in (store / "commitlog").iterdir())


async def _delete_all_but_the_last(broker: RunningBroker, client: RawClient) -> None:
    """Make all files of the log old, and have them deleted (329)."""
    files = list(broker.broker.settings.commit_log_dir.iterdir())
    assert len(files) > 3
    for path in files:
        os.utime(path, (1_000_000_000, 1_000_000_000))
    log = broker.store.commit_log
    # Files whose queue entries are not on the disk yet are kept until the next round, seconds later.
    await until(lambda: log.entries_flushed_to >= log.files[-1].start)
    answer = await client.ask(request(RequestCode.DELETE_EXPIRED_COMMITLOG))
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    await until(lambda: len(log.files) == 1)
    await _until_all_follow(broker)


async def _until_all_follow(broker: RunningBroker) -> None:
    """Until nothing points before the log's beginning."""
    await until(lambda: broker.services.storage.cleaner.cleaned_to == broker.store.min_phy_offset())


async def test_others_fill_the_disk_and_empty_it(disk_folder: Path) -> None:
    ballast = disk_folder / "ballast"
    topic = Topic()
    async with running_broker(disk_folder, **_SETTINGS) as broker, broker.client() as client:
        await topic.create(client)
        await topic.send(client)
        ballast.write_bytes(bytes(_BALLAST_BYTES))
        await until(lambda: broker.services.storage.disk.level is DiskLevel.REFUSE)
        remark = await topic.send(client)
        assert remark is not None
        for part in (
            "service not available",
            "% full",
            "diskSpaceWarningLevelRatio=90",
            "Nothing was stored",
        ):
            assert part in remark
        assert await topic.check(client) == 0, "who reads is served"
        ballast.unlink()
        await until(lambda: broker.services.storage.disk.level is DiskLevel.ENOUGH)
        assert await topic.send(client) is None
        assert await topic.check(client) == 0


async def test_messages_fill_the_disk_and_are_cleaned(disk_folder: Path, tmp_path: Path) -> None:
    """Until they are refused; then the oldest go, and all goes on without a restart, and with one."""
    topic = Topic()
    keys = _SETTINGS | {"cleanFileForciblyEnable": False}
    async with running_broker(disk_folder, **keys) as broker, broker.client() as client:
        await topic.create(client)
        while (remark := await topic.send(client)) is None:
            pass
        assert "% full" in remark and await topic.check(client) == 0
        refused_at = len(topic.bodies)

        broker.change(cleanFileForciblyEnable="true")
        await until(lambda: broker.services.storage.disk.level <= DiskLevel.FORCE)
        while len(topic.bodies) < refused_at + 200:
            if await topic.send(client) is not None:
                await until(lambda: broker.services.storage.disk.refusal is None)
            elif len(topic.bodies) % 4 == 0:
                await topic.consume(client)
        assert topic.moves > 0
        broker.change(cleanFileForciblyEnable="false")
        await broker.services.storage.cleaner.look()  # behind a round that is under way
        await _until_all_follow(broker)
        await until(lambda: broker.store.queues.unwritten_bytes == 0)
        # Files of queues that were written after their messages had gone.
        await client.ask(request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE))
        lowest = await topic.check(client)
        assert 0 < lowest < refused_at
        killed = tmp_path / "killed"
        shutil.copytree(disk_folder / "store", killed / "store")  # as a killed process leaves it

    begin = _log_begins(disk_folder / "store")
    assert begin > 0
    queue_files = list((disk_folder / "store/consumequeue/Filled/0").iterdir())
    assert min(int(path.name) for path in queue_files) > 0, "the queue's first files have gone too"
    for folder in (disk_folder, killed):
        async with running_broker(folder, **keys) as broker, broker.client() as client:
            assert broker.store.min_phy_offset() == begin
            assert await topic.check(client) == lowest
    async with running_broker(killed, **_ROOMY) as broker, broker.client() as client:
        assert await topic.send(client) is None
        assert await topic.check(client) == lowest


async def test_old_files_are_deleted_on_request(tmp_path: Path) -> None:
    """329, with consumers that are behind, and a queue that has nothing left."""
    quiet, busy = Topic("Quiet"), Topic("Busy")
    keys = _ROOMY | {"deleteWhen": (datetime.now().hour + 12) % 24}
    async with running_broker(tmp_path, **keys) as broker, broker.client() as client:
        for topic in (quiet, busy):
            await topic.create(client)
        await quiet.send(client)
        for _ in range(150):
            await busy.send(client)
        await _delete_all_but_the_last(broker, client)
        assert await busy.check(client) > 100
        assert await quiet.check(client) == 1, "empty, and it knows how far it has counted"
        assert await quiet.send(client) is None
    async with running_broker(tmp_path, **keys) as broker, broker.client() as client:
        assert await quiet.check(client) == 1
        assert await busy.check(client) > 100


async def test_queues_of_topics_that_are_gone(tmp_path: Path) -> None:
    """316 deletes them; 306 only when their messages have gone. What exists stays, and keeps its count."""
    kept, gone = Topic("Kept"), Topic("Gone")
    async with running_broker(tmp_path, **_ROOMY) as broker, broker.client() as client:
        for topic in (kept, gone):
            await topic.create(client)
            await topic.send(client)
        broker.topics.delete(["Gone"])  # of the table alone
        answer = await client.ask(request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert sorted(broker.store.queues.topics()) == ["Gone", "Kept"]

        for _ in range(150):
            await kept.send(client)
        await _delete_all_but_the_last(broker, client)
        await client.ask(request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE))
        assert broker.store.queues.topics() == ["Kept"]

        again = Topic("Gone")
        await again.create(client)
        await again.send(client)
        broker.topics.delete(["Gone"])
        answer = await client.ask(request(RequestCode.CLEAN_UNUSED_TOPIC))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert broker.store.queues.topics() == ["Kept"]
        await kept.check(client)
    async with running_broker(tmp_path, **_ROOMY) as broker, broker.client() as client:
        assert broker.store.queues.topics() == ["Kept"]
        await kept.check(client)
