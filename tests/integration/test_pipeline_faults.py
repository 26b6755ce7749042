"""The faults of `make pipeline FAULTS=1`, with brokers but without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from examples.pipeline.brokers import Brokers
from examples.pipeline.check import Work
from examples.pipeline.faults import BROKERS, Faults, stored
from examples.pipeline.programs import Program
from examples.pipeline.records import append
from examples.pipeline.watch import Watch
from rmq_client import Admin, Message, MessageQueue, Producer

pytestmark = pytest.mark.thorough

_TOPIC = "access-log"
_LINES = 100


def _record(batch: int, ends: dict[MessageQueue, int]) -> dict[str, object]:
    """Return the job's record of a batch that ended at these offsets."""
    listed = [(queue.broker_name, queue.queue_id, offset) for queue, offset in ends.items()]
    values = {"read": sum(ends.values()), "ends": listed, "batch": batch}
    return {**values, "retired": 0, "duplicates": 0, "watermark": None}


@pytest.mark.timeout(240)
async def test_faults_come_in_order_and_lose_nothing(tmp_path: Path) -> None:
    work, programs = Work(tmp_path), list[Program]()
    for part in ("offsets", "commits"):
        (work.checkpoint / part).mkdir(parents=True)
    restarts: list[int] = []

    async def restart_job(within: Callable[[], Awaitable[None]]) -> None:
        (work.checkpoint / "commits" / "0").touch()
        append(work.job_progress, _record(0, {}))
        waiting = asyncio.ensure_future(within())
        done, _ = await asyncio.wait({waiting}, timeout=0.2)
        assert not done  # no batch is under way
        (work.checkpoint / "offsets" / "1").touch()
        await waiting
        restarts.append(1)

    async with Brokers(BROKERS, tmp_path, work.logs, programs) as brokers, Admin(brokers.namesrv) as admin:
        await admin.create_topic(_TOPIC, queues=2)
        assert len(programs) == BROKERS + 1
        async with Producer(brokers.namesrv, group="replay") as producer:
            for name in brokers.names:
                for number in range(_LINES):
                    queue = MessageQueue(_TOPIC, name, number % 2)
                    await producer.send(Message(_TOPIC, b"a line"), queue=queue)
        before = await stored(admin, _TOPIC)
        assert before == BROKERS * _LINES

        watch = Watch(work, programs, brokers.first, tell_every_seconds=1000)
        faults = Faults(
            brokers, _TOPIC, watch, restart_job, work.checkpoint, down_seconds=0.1, route_seconds=0.1
        )
        task = asyncio.create_task(faults.run(_LINES, lambda: True))
        append(work.replay_progress, {"time": 0, "sent": _LINES})
        await watch.until(lambda: bool(restarts))
        assert len(programs) == BROKERS + 1  # the killed broker is back
        assert await stored(admin, _TOPIC) == before

        stats = await admin.topic_stats(_TOPIC)
        append(work.job_progress, _record(1, {queue: at.max_offset for queue, at in stats.items()}))
        await watch.until(task.done)
        await task
        assert faults.retired == _LINES
        assert len(programs) == BROKERS
        assert brokers.names[2] not in (await admin.cluster_info()).brokers
