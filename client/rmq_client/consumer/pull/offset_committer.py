"""Commits of one pull consumer: the offsets up to which its group has processed messages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from rmq_remoting.message_queue import MessageQueue

from ...errors import ClientError
from ...network.broker_api import BrokerApi
from ..offsets.offset_store import CommitListener
from .pull_source import PullSource

log = logging.getLogger(__name__)


class OffsetCommitter:
    """Sends offsets to the brokers, by full topic names. Belongs to the application's loop."""

    def __init__(
        self,
        api: BrokerApi,
        source: PullSource,
        group: str,
        interval_seconds: float,
        committed: CommitListener | None = None,
    ) -> None:
        """`interval_seconds`: the least time between two background commits, see `is_due`.

        `committed` gets all commits.
        """
        self._committed = committed
        self._api = api
        self._source = source
        self._group = group
        self._interval_seconds = interval_seconds
        self._last_commit_at = asyncio.get_running_loop().time()
        self._task: asyncio.Task[None] | None = None

    async def commit(self, offsets: Mapping[MessageQueue, int], *, automatic: bool = False) -> None:
        """Commit the offsets of all queues. Raises the ClientError of the first queue that failed."""
        began = time.perf_counter()
        outcomes = await asyncio.gather(
            *(self._commit_one(queue, offset) for queue, offset in offsets.items()), return_exceptions=True
        )
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if self._committed is not None:
            elapsed = time.perf_counter() - began
            self._committed(offsets, elapsed, errors[0] if errors else None, automatic=automatic)
        if errors:
            raise errors[0]

    async def commit_or_log(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit; a failure is logged, since the next commit repeats the offset."""
        try:
            await self.commit(offsets, automatic=True)
        except ClientError as error:
            log.warning(
                "offsets not committed group=%s cause=%s; the next commit retries", self._group, error
            )

    def is_due(self) -> bool:
        """Whether the interval since the last commit in the background is over."""
        return asyncio.get_running_loop().time() - self._last_commit_at >= self._interval_seconds

    def commit_in_background(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Start a commit in the background."""
        self._last_commit_at = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self.commit_or_log(offsets), name=f"rmq commit {self._group}")

    async def wait(self) -> None:
        """Wait for the commit in the background."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _commit_one(self, queue: MessageQueue, offset: int) -> None:
        await self._source.at_broker(
            queue, lambda address, asked: self._api.commit_offset(address, self._group, asked, offset)
        )
