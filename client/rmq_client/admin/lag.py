"""The progress of groups: lag by queue, and consumption times."""

from __future__ import annotations

import asyncio
from typing import Final

from rmq_remoting.bodies.offsets import ConsumeStats, QueryConsumeTimeSpanBody
from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.consumer import GetConsumeStatsRequestHeader, QueryConsumeTimeSpanRequestHeader

from .arguments import checked
from .groups import GroupAdmin
from .results import GroupLag, QueueLag, QueueTimes, time_of

_SIDE_BY_SIDE: Final = 16


class LagAdmin(GroupAdmin):
    """Progress of groups."""

    @checked
    async def consume_time_span(self, group: str, topic: str) -> list[QueueTimes]:
        """Return the times of the first, the last and the last consumed message of each queue.

        Raises GroupNotFound, TopicNotFound and other ClientErrors.
        """
        group, topic = self._namespace.checked_group(group), self._namespace.wrap(topic)
        await self._check_group(group, await self._masters())
        header = QueryConsumeTimeSpanRequestHeader(group=group, topic=topic)
        each = await asyncio.gather(
            *(
                self._body(
                    address,
                    RequestCode.QUERY_CONSUME_TIME_SPAN,
                    header,
                    f"consumption times of group {group} in topic {topic}",
                    QueryConsumeTimeSpanBody.decode,
                )
                for address in await self._addresses_of(topic)
            )
        )
        return [
            QueueTimes(
                queue=self._namespace.unwrap_queue(span.message_queue),
                first_stored=time_of(span.min_timestamp),
                last_stored=time_of(span.max_timestamp),
                consumed_until=time_of(span.consume_timestamp),
                delay_seconds=max(0, span.delay_time_ms) / 1000,
            )
            for body in each
            for span in body.consume_time_span_set
            if span.message_queue is not None
        ]

    @checked
    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """Return how far a group is behind, queue by queue.

        Without `topic`: in all topics that it has consumed, its retry topic included. The result also has the
        messages per second that the group got in the last minute. A group that never consumed has no queues.
        Raises GroupNotFound, TopicNotFound and other ClientErrors.
        """
        name = self._namespace.checked_group(group)
        masters = await self._masters()
        await self._check_group(name, masters)
        return _lag_of(group, await self._consume_stats(name, topic, masters))

    @checked
    async def lags(self) -> list[GroupLag]:
        """Return the lag of every group that has consumed something. Raises ClientError."""
        masters = await self._masters()
        turns = asyncio.Semaphore(_SIDE_BY_SIDE)

        async def ask(group: str) -> GroupLag:
            async with turns:
                full = self._namespace.checked_group(group)
                return _lag_of(group, await self._consume_stats(full, None, masters))

        found = await asyncio.gather(*(ask(group) for group in await self.groups()))
        return [lag for lag in found if lag.queues]

    async def _consume_stats(self, group: str, topic: str | None, masters: dict[str, str]) -> ConsumeStats:
        """208: join the answers of the brokers. `group` is the full name."""
        addresses = list(masters.values())
        if topic is not None:
            topic = self._namespace.wrap(topic)
            addresses = await self._addresses_of(topic)
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        code, about = RequestCode.GET_CONSUME_STATS, f"progress of group {group}"
        each = await asyncio.gather(
            *(self._body(address, code, header, about, ConsumeStats.decode) for address in addresses)
        )
        unwrap = self._namespace.unwrap_queue
        return ConsumeStats(
            offset_table={
                unwrap(queue): reach for stats in each for queue, reach in stats.offset_table.items()
            },
            consume_tps=sum(stats.consume_tps for stats in each),
        )


def _lag_of(group: str, stats: ConsumeStats) -> GroupLag:
    return GroupLag(
        group=group,
        queues=tuple(
            QueueLag(
                queue=queue,
                committed=max(0, reach.consumer_offset),
                end=reach.broker_offset,
                consumed_until=time_of(reach.last_timestamp),
                in_flight=max(0, reach.pull_offset - reach.consumer_offset) if reach.pull_offset else 0,
            )
            for queue, reach in sorted(stats.offset_table.items())
        ),
        consumed_per_second=stats.consume_tps,
    )
