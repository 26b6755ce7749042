"""Queue locks of brokers: an ordered queue has one consumer at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from rmq_remoting.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rmq_remoting.codes import RequestCode
from rmq_remoting.message_queue import MessageQueue

from ...errors import ClientError, readable
from ...network.broker_api import BrokerApi
from ...tasks import uninterrupted
from ..offsets.offset_store import AddressOf

log = logging.getLogger(__name__)

# A lock is trusted for this time after the broker's last answer; brokers keep it for 60 s (Apache RocketMQ
# 5.3.3, ProcessQueue and RebalanceLockManager).
LOCK_LIFE_SECONDS: Final = 30.0


class QueueLocks:
    """Requests the locks of one member of a group.

    Requests are sent one after the other, and run to their end even if their caller is cancelled. A renewal
    that a broker processes after the unlock would lock the queue without an owner.
    """

    def __init__(
        self,
        group: str,
        client_id: str,
        api: BrokerApi,
        address_of: AddressOf,
        on_refused: Callable[[MessageQueue], None] = lambda queue: None,
    ) -> None:
        """`on_refused` gets each queue whose lock a broker refuses."""
        self._group = group
        self._client_id = client_id
        self._api = api
        self._address_of = address_of
        self._on_refused = on_refused
        self._asking = asyncio.Lock()
        # Locks that brokers may hold for this member, also if no caller waited for the answer.
        self._perhaps_locked: set[MessageQueue] = set()

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """41: lock queues, or renew their locks; the result contains the queues whose broker has answered."""
        return await uninterrupted(self._lock_all(list(queues)))

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """42: release locks. A failure is logged: the broker's lock expires after a minute."""
        await uninterrupted(self._unlock_all(list(queues)))

    async def unlock_all_but(self, queues: Iterable[MessageQueue]) -> None:
        """Release all other locks that a broker may hold for this member."""
        kept = set(queues)
        async with self._asking:  # until the result of the last request is known
            left = self._perhaps_locked - kept
        await self.unlock(left)

    async def _lock_all(self, queues: list[MessageQueue]) -> dict[MessageQueue, bool]:
        async with self._asking:
            self._perhaps_locked.update(queues)
            outcomes = await asyncio.gather(
                *(self._lock(address, own) for address, own in self._by_broker(queues))
            )
            locked = {queue: locked for outcome in outcomes for queue, locked in outcome.items()}
            refused = [queue for queue in locked if not locked[queue]]
            self._perhaps_locked.difference_update(refused)
            for queue in refused:
                self._on_refused(queue)
        return locked

    async def _unlock_all(self, queues: list[MessageQueue]) -> None:
        async with self._asking:
            await asyncio.gather(*(self._unlock(address, own) for address, own in self._by_broker(queues)))
            self._perhaps_locked.difference_update(queues)

    async def _lock(self, address: str, queues: list[MessageQueue]) -> dict[MessageQueue, bool]:
        body = LockBatchRequestBody(client_id=self._client_id, consumer_group=self._group, mq_set=queues)
        about = f"lock {len(queues)} queues for group {self._group}"
        try:
            answer = await self._api.call(
                address, RequestCode.LOCK_BATCH_MQ, None, body.encode(), about=about
            )
            with readable(address, about):
                locked = set(LockBatchResponseBody.decode(answer.body).lock_ok_mq_set)
        except ClientError as error:
            log.warning("queues not locked count=%d cause=%s; retried", len(queues), error)
            return {}
        return {queue: queue in locked for queue in queues}

    async def _unlock(self, address: str, queues: list[MessageQueue]) -> None:
        body = UnlockBatchRequestBody(client_id=self._client_id, consumer_group=self._group, mq_set=queues)
        about = f"unlock {len(queues)} queues of group {self._group}"
        try:
            await self._api.call(address, RequestCode.UNLOCK_BATCH_MQ, None, body.encode(), about=about)
        except ClientError as error:
            log.warning("queues not unlocked count=%d cause=%s; their locks expire", len(queues), error)

    def _by_broker(self, queues: Iterable[MessageQueue]) -> list[tuple[str, list[MessageQueue]]]:
        """Return each broker's address and queues. Behind a proxy all brokers have one address."""
        by_broker: dict[tuple[str, str], list[MessageQueue]] = defaultdict(list)
        masterless: dict[str, int] = {}
        for queue in queues:
            address = self._address_of(queue)
            if address is None:
                masterless[queue.broker_name] = masterless.get(queue.broker_name, 0) + 1
            else:
                by_broker[address, queue.broker_name].append(queue)
        for broker_name, count in masterless.items():
            log.warning("queues not locked count=%d cause=no master of %s is known", count, broker_name)
        return [(address, own) for (address, _), own in by_broker.items()]
