"""Changes of a group's offsets in a whole topic: reset to a time or an offset, skip, clone."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final

from rmq_remoting.bodies.offsets import ResetOffsetBody
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.headers.offsets import CloneGroupOffsetRequestHeader, ResetOffsetRequestHeader
from rmq_remoting.message_queue import MessageQueue

from ..checks import check_time_ms
from ..errors import NoQueue, NotFound, UsageError
from .arguments import checked
from .groups import GroupAdmin
from .results import OffsetChange

# Apache's brokers take a negative time for the end of a queue.
_TO_THE_END_MS: Final = -1
_NO_OFFSET: Final = -1


class OffsetChangeAdmin(GroupAdmin):
    """Changes of a group's offsets.

    Brokers reset groups whether or not their consumers run. Running consumers of a group continue at the
    new offsets.
    """

    @checked
    async def reset_offsets(
        self,
        group: str,
        topic: str,
        *,
        to_time: datetime | None = None,
        to_earliest: bool = False,
        to_latest: bool = False,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Reset a group in all queues of a topic; return the change of each queue.

        Exactly one target: `to_time` is the first message stored at that time or later (the end of a queue if
        there is none), `to_earliest` the oldest message, `to_latest` the end. `to_time` needs a time zone.
        With `dry_run` nothing changes. Raises GroupNotFound, TopicNotFound and other ClientErrors.
        """
        if (to_time is not None) + to_earliest + to_latest != 1:
            raise UsageError("name one target of the reset: to_time, to_earliest or to_latest")
        timestamp_ms = 0 if to_earliest else _TO_THE_END_MS
        if to_time is not None:
            timestamp_ms = check_time_ms("to_time", to_time)
        name, full_topic = self._namespace.checked_group(group), self._namespace.wrap(topic)
        await self._check_group(name, await self._masters())
        before = await self._committed(name, full_topic)
        if dry_run:
            after = await self._targets(list(before), timestamp_ms)
        else:
            after = await self._reset(name, full_topic, timestamp_ms, list(before))
        unwrap = self._namespace.unwrap_queue
        return [
            OffsetChange(unwrap(queue), before.get(queue), offset) for queue, offset in sorted(after.items())
        ]

    @checked
    async def reset_queue_offset(
        self, group: str, queue: MessageQueue, offset: int, *, dry_run: bool = False
    ) -> OffsetChange:
        """Reset a group in one queue to an offset, between the queue's first and its end.

        With `dry_run` nothing changes. Raises GroupNotFound, UsageError for an offset outside of the queue,
        and other ClientErrors.
        """
        name, full = self._namespace.checked_group(group), self._namespace.wrap_queue(queue)
        await self._check_group(name, await self._masters())
        address = await self._address_of(full)
        first, end = await self._api.min_offset(address, full), await self._api.max_offset(address, full)
        if not first <= offset <= end:
            raise UsageError(f"offset {offset} is outside of {queue}: use {first} to {end}")
        before = await self._api.committed_offset(address, name, full)
        if not dry_run:
            header = ResetOffsetRequestHeader(
                group=name,
                topic=full.topic,
                queue_id=full.queue_id,
                offset=offset,
                force=True,
                broker_name=full.broker_name,
            )
            await self._api.call(
                address,
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                header,
                about=f"reset of group {name} in {full} to {offset}",
            )
        return OffsetChange(queue, before, offset)

    @checked
    async def skip_backlog(self, group: str, topic: str, *, dry_run: bool = False) -> list[OffsetChange]:
        """Let a group skip all messages that it has not consumed; return the change of each queue.

        The messages stay where they are, and `reset_offsets` goes back to them. Raises ClientError.
        """
        return await self.reset_offsets(group, topic, to_latest=True, dry_run=dry_run)

    @checked
    async def clone_offsets(self, source: str, target: str, topic: str) -> list[OffsetChange]:
        """Copy the offsets of one group in a topic to another group; return the change of each queue.

        The consumers of `target` must not be running. Raises GroupNotFound, NoQueue if the source has no
        offset in the topic, and other ClientErrors.
        """
        from_group, to_group = self._namespace.checked_group(source), self._namespace.checked_group(target)
        full_topic = self._namespace.wrap(topic)
        masters = await self._masters()
        for name in (from_group, to_group):
            await self._check_group(name, masters)
        source_offsets = await self._committed(from_group, full_topic)
        before = await self._committed(to_group, full_topic)
        if all(offset is None for offset in source_offsets.values()):
            raise NoQueue(f"group {source} has committed no offset in topic {topic}: nothing to copy")
        header = CloneGroupOffsetRequestHeader(
            source_group=from_group, destination_group=to_group, topic=full_topic, offline=True
        )
        code, about = RequestCode.CLONE_GROUP_OFFSET, f"copy of the offsets of group {from_group}"
        for address in await self._addresses_of(full_topic):
            await self._api.call(address, code, header, about=about)
        return [
            OffsetChange(self._namespace.unwrap_queue(queue), before.get(queue), offset)
            for queue, offset in sorted(source_offsets.items())
            if offset is not None
        ]

    async def _reset(
        self, group: str, topic: str, timestamp_ms: int, queues: list[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """222: reset the group on each broker of the topic; return the new offsets."""
        header = ResetOffsetRequestHeader(
            group=group, topic=topic, timestamp=timestamp_ms, offset=_NO_OFFSET, force=True
        )
        code, about = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, f"reset of group {group} in {topic}"
        route = await self.topic_route(topic)

        async def reset(broker: str) -> dict[MessageQueue, int]:
            address = route.known_address(broker, topic)
            try:
                body = await self._body(address, code, header, about, ResetOffsetBody.decode)
            except NotFound as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
            else:
                return body.offset_table
            # A broker with useServerSideResetOffset=false lets connected consumers reset themselves. There
            # are none, so the offsets can be committed for them.
            of_broker = [queue for queue in queues if queue.broker_name == broker]
            targets = await self._targets(of_broker, timestamp_ms)
            for queue, offset in targets.items():
                await self._api.commit_offset(address, group, queue, offset)
            return targets

        tables = await asyncio.gather(*map(reset, route.brokers))
        return {queue: offset for table in tables for queue, offset in table.items()}

    async def _committed(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """Return the group's offsets in all queues of a topic; full names."""
        route = await self.topic_route(topic)
        queues = sorted({*route.read_queues, *route.write_queues})
        offsets = await asyncio.gather(
            *(
                self._api.committed_offset(route.known_address_of(queue), group, route.on_broker(queue))
                for queue in queues
            )
        )
        return dict(zip(queues, offsets, strict=True))

    async def _targets(self, queues: list[MessageQueue], timestamp_ms: int) -> dict[MessageQueue, int]:
        """Return the offsets to which a reset to a time would go."""

        async def target(queue: MessageQueue) -> int:
            address = await self._address_of(queue)
            if timestamp_ms == _TO_THE_END_MS:
                return await self._api.max_offset(address, queue)
            return await self._api.search_offset(address, queue, timestamp_ms)

        return dict(zip(queues, await asyncio.gather(*map(target, queues)), strict=True))
