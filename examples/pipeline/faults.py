"""Faults during a run: a broker is killed, the driver of the job is killed, a broker is retired.

Each fault comes when a share of the log has been sent. The job must count every line in spite of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from examples.pipeline.brokers import Brokers
from examples.pipeline.programs import ProgramFailed
from examples.pipeline.watch import Watch
from rmq_client import Admin

BROKERS: Final = 3
_LOOK_SECONDS: Final = 0.02
_DOWN_SECONDS: Final = 5.0
# Producers learn within 30 s that a broker takes no more messages (`pollNameServerInterval`).
_ROUTE_SECONDS: Final = 35.0
_DRAIN_SECONDS: Final = 300.0


class Faults:
    """The faults of one run."""

    def __init__(
        self,
        brokers: Brokers,
        topic: str,
        watch: Watch,
        restart_job: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
        checkpoint: Path,
        *,
        down_seconds: float = _DOWN_SECONDS,
        route_seconds: float = _ROUTE_SECONDS,
    ) -> None:
        """`restart_job`: waits for its argument, kills the driver, and starts it again.

        `checkpoint`: the folder of the job's checkpoint. `down_seconds`: from the kill of the broker to its
        start. `route_seconds`: until producers know that the retired broker takes no more messages.
        """
        self._down_seconds = down_seconds
        self._route_seconds = route_seconds
        self._brokers = brokers
        self._topic = topic
        self._watch = watch
        self._restart_job = restart_job
        self._checkpoint = checkpoint
        self.retired = 0
        """Messages of the retired broker, which no other broker has."""
        self.retired_at: float | None = None

    async def run(self, lines: int, replaying: Callable[[], bool]) -> None:
        """Cause the faults while `lines` lines are sent. Raises ProgramFailed, ClientError."""
        await self._until(lambda: self._watch.sent >= lines * 0.15)
        await self._kill_broker(self._brokers.names[1])
        await self._until(lambda: self._watch.sent >= lines * 0.35)
        await self._restart_job(lambda: self._until(lambda: self._within_batch() or not replaying()))
        await self._until(lambda: self._watch.sent >= lines * 0.55)
        await self._retire_broker(self._brokers.names[2])

    async def _kill_broker(self, name: str) -> None:
        await self._brokers.kill(name)
        _tell(f"{name} killed, back in {self._down_seconds:g} s")
        await asyncio.sleep(self._down_seconds)
        await self._brokers.start(name)
        _tell(f"{name} is back")

    async def _retire_broker(self, name: str) -> None:
        """Let a broker take no more messages, wait until the job has read all of them, and stop it."""
        async with Admin(self._brokers.namesrv) as admin:
            await admin.wipe_write_permission(name)
            _tell(f"{name} takes no more messages")
            await asyncio.sleep(self._route_seconds)
            ends = await _ends(admin, self._topic, name)
        began = time.monotonic()
        while any(self._watch.ends.get(queue, 0) < end for queue, end in ends.items()):
            if time.monotonic() - began > _DRAIN_SECONDS:
                raise ProgramFailed(f"{name} was not read to its end within {_DRAIN_SECONDS:g} s")
            await asyncio.sleep(_LOOK_SECONDS)
        await self._brokers.stop(name)
        self.retired = sum(ends.values())
        self.retired_at = time.monotonic()
        _tell(f"{name} retired, with {self.retired:,} messages that the job has read")

    def _within_batch(self) -> bool:
        """Return whether a batch is under way, and all earlier ones are in the progress records."""
        begun, ended = (_last_number(self._checkpoint / part) for part in ("offsets", "commits"))
        return begun > ended >= 0 and self._watch.last_batch == ended

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - the conditions are in files of other programs
            await asyncio.sleep(_LOOK_SECONDS)


async def _ends(admin: Admin, topic: str, broker: str) -> dict[tuple[str, int], int]:
    stats = await admin.topic_stats(topic, broker_name=broker)
    return {(queue.broker_name, queue.queue_id): at.max_offset for queue, at in stats.items()}


async def stored(admin: Admin, topic: str) -> int:
    """Return the number of messages that the brokers have stored in a topic."""
    return sum(queue.max_offset for queue in (await admin.topic_stats(topic)).values())


def _last_number(folder: Path) -> int:
    """Return the number of the newest batch in a folder of the checkpoint; -1 without one."""
    if not folder.exists():
        return -1
    return max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=-1)


def _tell(text: str) -> None:
    print(f"fault: {text}", flush=True)
