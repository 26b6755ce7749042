"""Consumers wait after a start of a master until its replicas have the end of its log.

In a group with a controller they also wait after a start of a replica until it knows that its master has its
log: it may be a former master.

The end of a log may hold messages which no replica had acknowledged before the stop. A consumer that saw one
of them would have seen a message that the group does not have, if this master were lost again, and a replica
took over.

With a controller, Apache's broker keeps the confirmed offset in its `checkpoint`, and shows consumers nothing
behind it (RocketMQ 5.3.3, CommitLog.recoverAbnormally). That offset is older than those that consumers have
seen, so that they would be moved back. Here they wait as at the end of a queue.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .replica_set import ReplicaSet

log = logging.getLogger("rmq.store.replicas")

# A replica that is lost for longer must not keep consumers from older messages.
_MOST_SECONDS: Final = 10.0


class HeldReads:
    """Tells whether consumers wait; belongs to the event loop's thread."""

    def __init__(self, replicas: ReplicaSet) -> None:
        self.are_held = False
        self.were_held = False  # whether they have ever been held
        self._replicas = replicas
        self._end = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, log_end: int) -> None:
        """Hold reads until replicas have the log up to `log_end`; in a running event loop."""
        if self._replicas.is_synchronous and self._replicas.confirmed_offset < log_end:
            self.hold(log_end)

    def hold(self, log_end: int) -> None:
        """Hold reads until the log is confirmed up to `log_end`, for a time; in a running event loop."""
        self._end = log_end
        self.are_held = self.were_held = True
        self._timer = asyncio.get_running_loop().call_later(_MOST_SECONDS, self._time_up)
        log.info("consumers wait until the other brokers have the log log_end=%d", log_end)

    def confirmed(self, offset: int) -> None:
        """Note that replicas, or the master, have the log up to `offset`."""
        if self.are_held and offset >= self._end:
            log.info("the other brokers have the log; consumers are served log_end=%d", self._end)
            self.stop()

    def stop(self) -> None:
        """Hold reads no longer."""
        self.are_held = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_up(self) -> None:
        log.warning(
            "consumers are served although no other broker has the whole log seconds=%.0f log_end=%d",
            _MOST_SECONDS,
            self._end,
        )
        self.stop()
