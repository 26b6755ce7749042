"""Deletion of topics in the store: at once in memory, then on the disk, in a thread.

Order on the disk: `rmq_queues.json` says that the topics are deleted, then their files are removed. A start
finishes a deletion that was interrupted between the two.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from rmq_remoting.daemon.file_errors import advice_for

if TYPE_CHECKING:
    from ..queues.consume_queues import ConsumeQueues
    from ..queues.topic_removal import TopicRemoval
    from .queue_state import QueueStateFile

log = logging.getLogger("rmq.store")


class TopicDeletions:
    """Deletes topics in the order of the calls. `delete` belongs to the event loop's thread.

    A deletion is final in memory, even if the disk refuses it: `retry` continues it then. Deletions that wait
    for the thread are persisted together.
    """

    def __init__(
        self, queues: ConsumeQueues, state: QueueStateFile, log_range: Callable[[], tuple[int, int]]
    ) -> None:
        """`log_range` returns the offsets where the log begins and ends."""
        self._queues = queues
        self._state = state
        self._log_range = log_range
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="store-deletion")
        self._one_at_a_time = Lock()
        self._pending: deque[TopicRemoval] = deque()  # in the order of the deletions
        # Why files of deleted topics cannot be removed; None if they can.
        self.failure: OSError | None = None

    def delete(self, names: Sequence[str]) -> Future[None]:
        """Delete topics that have queues; return at once, with a future of the durable deletion.

        The future raises OSError if the disk refuses this deletion, or an earlier one.
        """
        stored = [name for name in names if self._queues.of_topic(name)]
        if stored:
            _, log_end = self._log_range()
            self._pending.append(self._queues.forget_topics(stored, log_end))
        if self._pending:
            return self._executor.submit(self.finish)
        nothing: Future[None] = Future()
        nothing.set_result(None)
        return nothing

    def finish(self) -> None:
        """Make all deletions durable, and remove the files. Raises OSError; blocks."""
        with self._one_at_a_time:
            try:
                self._remove_pending()
            except OSError as error:
                if self.failure is None:
                    log.error(
                        "files of deleted topics not removed cause=%s; tried again%s",
                        error,
                        advice_for(error),
                    )
                self.failure = error
                raise
            if self.failure is not None:
                log.warning("files of deleted topics removed")
                self.failure = None

    def retry(self) -> None:
        """Try again after a failure; blocks. `finish` has logged the failure."""
        with suppress(OSError):
            self.finish()

    def close(self) -> None:
        """Remove no more; when this returns, no removal is running."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _remove_pending(self) -> None:
        pending = list(self._pending)
        if not pending:
            return
        log_begin, _ = self._log_range()
        self._state.note_deleted(
            {topic: removal.log_end for removal in pending for topic in removal.topics}, log_begin
        )
        for removal in pending:
            self._queues.remove_files(removal)
            self._pending.popleft()
