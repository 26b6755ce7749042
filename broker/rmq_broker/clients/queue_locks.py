"""Queues that the members of a group have locked for themselves, to consume them in order.

Source of the rules: Apache RocketMQ 5.3.3, RebalanceLockManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from rmq_remoting.message_queue import MessageQueue

log = logging.getLogger("rmq.broker.clients")

# A member renews its locks every 20 s. One that is gone keeps its queues from the others for so long: it may
# still be working on the messages that it has.
HOLD_SECONDS: Final = 60.0
# How often `forget_expired` is to be called.
SWEEP_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Lock:
    """Who holds a queue, and when it said so last, in seconds on the clock."""

    client_id: str
    renewed_at: float


class QueueLocks:
    """At most one holder for each group and queue; a lock that is not renewed ends after `hold_seconds`.

    `clock` gives seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float], hold_seconds: float = HOLD_SECONDS) -> None:
        self._clock = clock
        self._hold_seconds = hold_seconds
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def counts(self) -> dict[str, int]:
        """How many queues are locked, by group."""
        return {group: len(locks) for group, locks in list(self._groups.items())}

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """The id of the client that holds a queue, if one does."""
        lock = self._groups.get(group, {}).get(queue)
        return None if lock is None or self._is_expired(lock) else lock.client_id

    def has_holder(self, group: str) -> bool:
        """Whether a client holds any queue of a group."""
        return any(not self._is_expired(lock) for lock in self._groups.get(group, {}).values())

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Lock queues for a client, or renew its locks; those that it holds now, in the order given."""
        locks = self._groups.setdefault(group, {})
        held = [queue for queue in queues if self._lock_one(group, locks, queue, client_id)]
        if not locks:
            del self._groups[group]
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give up those of the queues that the client holds; what others hold stays as it is."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                continue
            if lock.client_id != client_id:
                log.info(
                    "%s of group %s cannot unlock %s: %s holds it", client_id, group, queue, lock.client_id
                )
                continue
            log.info("%s of group %s has unlocked %s", client_id, group, queue)
            del locks[queue]
        if not locks:
            self._groups.pop(group, None)

    def forget_expired(self) -> None:
        """Drop the locks that nobody has renewed; to be called every `SWEEP_SECONDS`."""
        for group, locks in list(self._groups.items()):
            for queue, lock in list(locks.items()):
                if self._is_expired(lock):
                    log.info("the lock of %s of group %s on %s has ended", lock.client_id, group, queue)
                    del locks[queue]
            if not locks:
                del self._groups[group]

    # --- inside ---

    def _lock_one(
        self, group: str, locks: dict[MessageQueue, _Lock], queue: MessageQueue, client_id: str
    ) -> bool:
        lock = locks.get(queue)
        if lock is None:
            locks[queue] = _Lock(client_id, self._clock())
            log.info("%s of group %s has locked %s", client_id, group, queue)
            return True
        if lock.client_id != client_id:
            if not self._is_expired(lock):
                return False
            log.warning("%s of group %s takes %s over from %s", client_id, group, queue, lock.client_id)
            lock.client_id = client_id
        lock.renewed_at = self._clock()
        return True

    def _is_expired(self, lock: _Lock) -> bool:
        return self._clock() - lock.renewed_at > self._hold_seconds
