"""The tiers that requests run in, with the bounds that the settings give them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from rmq_remoting.tiers import InlineTier, PoolTier, Tier

if TYPE_CHECKING:
    from ..settings.tiers import TierSettings

# Without fast failure the wait of a request is not limited; a day stands for that.
_FOREVER_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Tiers:
    """The broker's tiers. Inline work takes microseconds; work in a pool may block."""

    send: InlineTier
    reply: InlineTier
    pull: InlineTier
    lite_pull: InlineTier
    pull_cold: PoolTier  # pulls pass reads of messages that are not in memory on to it
    ack: InlineTier
    transaction: InlineTier
    heartbeat: InlineTier
    client_manager: InlineTier
    consumer_manager: InlineTier
    admin: InlineTier
    admin_reads: PoolTier
    query: PoolTier

    @classmethod
    def of(cls, settings: TierSettings) -> Tiers:
        """Build tiers with the capacities and waits of the settings."""

        def wait_ms(limit_ms: int) -> int:
            return limit_ms if settings.broker_fast_failure_enable else _FOREVER_MS

        def inline(name: str, capacity: int, limit_ms: int) -> InlineTier:
            return InlineTier(name, capacity=capacity, max_wait_ms=wait_ms(limit_ms))

        return cls(
            send=inline("send", settings.send_queue_capacity, settings.send_max_wait_ms),
            # Apache's BrokerFastFailure does not watch the pool for replies.
            reply=InlineTier("reply", capacity=settings.reply_queue_capacity, max_wait_ms=_FOREVER_MS),
            pull=inline("pull", settings.pull_queue_capacity, settings.pull_max_wait_ms),
            lite_pull=inline("lite_pull", settings.lite_pull_queue_capacity, settings.lite_pull_max_wait_ms),
            pull_cold=PoolTier(
                "pull_cold",
                threads=settings.pull_cold_threads,
                capacity=settings.pull_cold_queue_capacity,
                max_wait_ms=wait_ms(settings.pull_max_wait_ms),
            ),
            ack=inline("ack", settings.ack_queue_capacity, settings.ack_max_wait_ms),
            transaction=inline(
                "transaction", settings.transaction_queue_capacity, settings.transaction_max_wait_ms
            ),
            heartbeat=inline("heartbeat", settings.heartbeat_queue_capacity, settings.heartbeat_max_wait_ms),
            client_manager=inline(
                "client_manager", settings.client_manager_queue_capacity, settings.heartbeat_max_wait_ms
            ),
            consumer_manager=inline(
                "consumer_manager", settings.consumer_manager_queue_capacity, settings.admin_max_wait_ms
            ),
            admin=inline("admin", settings.admin_queue_capacity, settings.admin_max_wait_ms),
            admin_reads=PoolTier(
                "admin_reads",
                threads=settings.admin_threads,
                capacity=settings.admin_queue_capacity,
                max_wait_ms=wait_ms(settings.admin_max_wait_ms),
            ),
            query=PoolTier(
                "query",
                threads=settings.query_threads,
                capacity=settings.query_queue_capacity,
                max_wait_ms=_FOREVER_MS,  # nor does it watch the query pool
            ),
        )

    def all(self) -> list[Tier]:
        """Return every tier, by name."""
        return sorted((getattr(self, field.name) for field in fields(self)), key=lambda tier: tier.name)

    def stop(self) -> None:
        """End the thread pools."""
        for tier in self.all():
            tier.stop()
