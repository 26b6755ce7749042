"""Renewal of invisible times: messages of push consumers stay invisible until they are acknowledged.

A push consumer receives with `auto_renew`, and acknowledges with the handle that it received. Meanwhile the
proxy renews the invisible time, and keeps the newest handle. Source: Apache RocketMQ 5.3.3,
DefaultReceiptHandleManager and RenewStrategyPolicy.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from rmq_client.errors import ClientError
from rmq_remoting.bodies.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)
from rmq_remoting.tasks import cancel_all

from .clients import Client, ClientRegistry
from .metadata import Metadata
from .pops import Pops
from .receipt_handles import ReceiptHandle
from .settings import ProxySettings
from .statuses import Refusal

log = logging.getLogger("rmq.proxy")

_MINUTE_MS: Final = 60_000
# The invisible time of each renewal of a message; the last one holds for all further ones.
_RENEWALS_MS: Final = tuple(minutes * _MINUTE_MS for minutes in (1, 3, 5, 10, 30, 60))
# Most renewals in flight at once.
_MAX_IN_FLIGHT: Final = 64
# How long a request waits for a renewal of the same message (lockTimeoutMsInHandleGroup).
_LOCK_SECONDS: Final = 3.0

_Key = tuple[str, str]
_Place = tuple[str, str, str, int, int]


@dataclass(slots=True)
class _Held:
    """A message that a client has not acknowledged yet. `delivered` counts earlier deliveries."""

    group: str
    topic: str
    message_id: str
    handle: ReceiptHandle
    delivered: int
    held_since_ms: int
    renewals: int = 0
    failures: int = 0
    is_over: bool = False
    in_flight: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


def _now_ms() -> int:
    return int(time.time() * 1000)


class Renewals:
    """The unacknowledged messages of push consumers. Belongs to one loop."""

    def __init__(
        self,
        pops: Pops,
        metadata: Metadata,
        clients: ClientRegistry,
        settings: ProxySettings,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self._pops = pops
        self._metadata = metadata
        self._clients = clients
        self._settings = settings
        self._now_ms = now_ms
        self._held: dict[_Key, dict[_Place, _Held]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_MAX_IN_FLIGHT)
        self.succeeded = 0
        self.failed = 0
        clients.on_leave.append(self._client_left)

    @property
    def held_count(self) -> int:
        """Number of messages whose invisible time is renewed."""
        return sum(map(len, self._held.values()))

    def hold(
        self, client_id: str, group: str, topic: str, message_id: str, handle: ReceiptHandle, delivered: int
    ) -> None:
        """Renew the invisible time of a message from now on."""
        held = _Held(group, topic, message_id, handle, delivered, self._now_ms())
        self._held.setdefault((client_id, group), {})[(message_id, *handle.place)] = held

    async def take(self, client_id: str, group: str, message_id: str, handle: ReceiptHandle) -> ReceiptHandle:
        """End the renewal of a message, and return its newest handle: `handle` itself if it has none."""
        of_client = self._held.get((client_id, group))
        if of_client is None:
            return handle
        held = of_client.pop((message_id, *handle.place), None)
        if held is None:
            return handle
        if not of_client:
            self._held.pop((client_id, group), None)
        held.is_over = True
        try:
            async with asyncio.timeout(_LOCK_SECONDS):
                await held.lock.acquire()
            held.lock.release()
        except TimeoutError:
            log.warning(
                "renewal still in flight message=%s group=%s; its old handle is used", message_id, group
            )
        return held.handle

    def renew_due(self) -> None:
        """Start the renewals that are due, and give up the messages of clients that have gone."""
        self._clients.drop_expired()
        limit_ms = self._now_ms() + self._settings.renew_ahead_time_ms
        for key, of_client in list(self._held.items()):
            if self._clients.get(key[0]) is None:
                self._release(key)
                continue
            for place, held in of_client.items():
                if held.handle.receipt.revive_time <= limit_ms and not held.in_flight:
                    held.in_flight = True
                    self._start(self._renew(key, place, held))

    async def stop(self) -> None:
        """Make those messages visible again soon whose handles the clients do not know, and wait for that.

        The others have never been renewed. Their clients acknowledge them through the next proxy.
        """
        await cancel_all(self._tasks)
        for key in list(self._held):
            self._release(key, only_renewed=True)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LOCK_SECONDS)
        await cancel_all(self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _renew(self, key: _Key, place: _Place, held: _Held) -> None:
        async with self._slots, held.lock:
            if held.is_over:
                return
            try:
                goes_on = await self._renewed(held)
            finally:
                held.in_flight = False
            if not goes_on:
                held.is_over = True
                of_client = self._held.get(key, {})
                if of_client.get(place) is held:
                    del of_client[place]

    async def _renewed(self, held: _Held) -> bool:
        """Renew a message; return whether it is to be renewed again."""
        if self._now_ms() - held.held_since_ms >= self._settings.renew_max_time_ms:
            await self._redeliver_later(held)
            return False
        step = _RENEWALS_MS[min(held.renewals, len(_RENEWALS_MS) - 1)]
        try:
            renewed = await self._pops.change_invisible(held.group, held.topic, held.handle, step)
        except Refusal as error:
            self.failed += 1
            log.warning("message not renewed id=%s group=%s cause=%s", held.message_id, held.group, error)
            return False
        except ClientError as error:
            self.failed += 1
            held.failures += 1
            log.warning("message not renewed id=%s group=%s cause=%s", held.message_id, held.group, error)
            return held.failures <= self._settings.max_renew_retry_times
        if renewed is None:
            self.failed += 1
            log.info("message no longer held id=%s group=%s", held.message_id, held.group)
            return False
        held.handle, held.failures = renewed, 0
        held.renewals += 1
        self.succeeded += 1
        return True

    async def _redeliver_later(self, held: _Held) -> None:
        """Redeliver a message that was held for too long, after the delay of its group's retry policy."""
        group = await self._metadata.group(held.group)
        if group is not None:
            await self._change(held, retry_delay_ms(group, held.delivered))

    def _client_left(self, client: Client) -> None:
        if client.group:
            self._release((client.client_id, client.group))

    def _release(self, key: _Key, *, only_renewed: bool = False) -> None:
        for held in self._held.pop(key, {}).values():
            held.is_over = True
            if held.renewals or not only_renewed:
                self._start(self._released(held))

    async def _released(self, held: _Held) -> None:
        async with self._slots, held.lock:
            await self._change(held, self._settings.invisible_time_when_clear_ms)

    async def _change(self, held: _Held, invisible_ms: int) -> None:
        try:
            await self._pops.change_invisible(held.group, held.topic, held.handle, invisible_ms)
        except (ClientError, Refusal) as error:
            log.info(
                "message not released id=%s group=%s cause=%s; it becomes visible again after its invisible "
                "time",
                held.message_id,
                held.group,
                error,
            )


def retry_delay_ms(group: SubscriptionGroupConfig, delivered: int) -> int:
    """Return the delay before a redelivery (Apache RocketMQ 5.3.3, the retry policies' nextDelayDuration)."""
    policy = group.group_retry_policy
    if policy.type is GroupRetryPolicyType.EXPONENTIAL:
        growth = policy.exponential_retry_policy or ExponentialRetryPolicy()
        return int(min(growth.max, growth.initial * growth.multiplier ** min(max(delivered, 0), 32)))
    delays = (policy.customized_retry_policy or CustomizedRetryPolicy()).next
    # The first two delays of brokers are for delays of sends (CustomizedRetryPolicy.nextDelayDuration).
    return int(delays[min(max(delivered, 0) + 2, len(delays) - 1)]) if delays else 0
