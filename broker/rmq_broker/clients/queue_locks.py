"""Queue locks of ordered consumers: one member of a group consumes a queue at a time.

Source of the rules: Apache RocketMQ 5.3.3, RebalanceLockManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from rmq_remoting.message_queue import MessageQueue

log = logging.getLogger("rmq.broker.clients")

# A member renews its locks every 20 s. Locks without renewal last this long: their holder may still be
# processing messages.
HOLD_SECONDS: Final = 60.0
# Interval of `forget_expired`.
SWEEP_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Lock:
    """The holder of a queue, and the time of its last renewal in seconds of the clock."""

    client_id: str
    renewed_at: float


class QueueLocks:
    """At most one holder for each group and queue; a lock without renewal expires after `hold_seconds`.

    `clock` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float], hold_seconds: float = HOLD_SECONDS) -> None:
        self._clock = clock
        self._hold_seconds = hold_seconds
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def counts(self) -> dict[str, int]:
        """Number of locked queues, by group."""
        return {group: len(locks) for group, locks in list(self._groups.items())}

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """Return the id of the client that holds a queue; None if it is unlocked."""
        lock = self._groups.get(group, {}).get(queue)
        return None if lock is None or self._is_expired(lock) else lock.client_id

    def has_holder(self, group: str) -> bool:
        """Whether a client holds any queue of a group."""
        return any(not self._is_expired(lock) for lock in self._groups.get(group, {}).values())

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Lock queues for a client, or renew its locks; return those that it holds, in the given order."""
        locks = self._groups.setdefault(group, {})
        held = [queue for queue in queues if self._lock_one(group, locks, queue, client_id)]
        if not locks:
            del self._groups[group]
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Unlock those of the queues that the client holds; locks of other clients stay."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                continue
            if lock.client_id != client_id:
                log.info(
                    "unlock refused client=%s group=%s queue=%s holder=%s",
                    client_id,
                    group,
                    queue,
                    lock.client_id,
                )
                continue
            log.info("queue unlocked client=%s group=%s queue=%s", client_id, group, queue)
            del locks[queue]
        if not locks:
            self._groups.pop(group, None)

    def forget_expired(self) -> None:
        """Remove expired locks. Call it every `SWEEP_SECONDS`."""
        for group, locks in list(self._groups.items()):
            for queue, lock in list(locks.items()):
                if self._is_expired(lock):
                    log.info("queue lock expired client=%s group=%s queue=%s", lock.client_id, group, queue)
                    del locks[queue]
            if not locks:
                del self._groups[group]

    # --- internals ---

    def _lock_one(
        self, group: str, locks: dict[MessageQueue, _Lock], queue: MessageQueue, client_id: str
    ) -> bool:
        lock = locks.get(queue)
        if lock is None:
            locks[queue] = _Lock(client_id, self._clock())
            log.info("queue locked client=%s group=%s queue=%s", client_id, group, queue)
            return True
        if lock.client_id != client_id:
            if not self._is_expired(lock):
                return False
            log.warning(
                "expired queue lock taken over client=%s group=%s queue=%s previous=%s",
                client_id,
                group,
                queue,
                lock.client_id,
            )
            lock.client_id = client_id
        lock.renewed_at = self._clock()
        return True

    def _is_expired(self, lock: _Lock) -> bool:
        return self._clock() - lock.renewed_at > self._hold_seconds
