"""Consumer offsets of the master, and commits that the master does not have.

The master's offsets replace those of the replica, once the replica's log has the messages and the check
points that they rest on. Consumers that the replica serves while the master is away commit here. Such a
commit stays in the replica's table and is persisted as the replica's own. When the master is back, the
replica commits it there, with the request that consumers use (15). A group that began while the master was
away is created there first. The commit is given up if the master's offset is
at least as high, or if that offset went back since the last answer: an operator has reset the group.

(Apache RocketMQ 5.3.3, SlaveSynchronize.syncConsumerOffset, replaces the slave's offsets by the master's, so
that such commits are lost.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import RequestCode, ResponseCode

from ...offsets.saved import SavedOffsets
from ...offsets.table import NO_OFFSET, split_key
from .master import MetadataError
from .part import require_member

if TYPE_CHECKING:
    from ...groups.table import SubscriptionGroupTable
    from ...offsets.table import ConsumerOffsetTable
    from ...topics.table import TopicTable
    from .log_barrier import LogBarrier
    from .master import Master

log = logging.getLogger("rmq.broker.replication")

# Offsets that are applied before the event loop runs other work: less than a millisecond.
_OFFSETS_PER_SLICE: Final = 1024
# Own commits that are passed on after one answer: each is a request.
_MOST_COMMITS: Final = 1000

Offsets = dict[str, dict[int, int]]


class OffsetPart:
    """Takes over the offsets, and passes own commits on."""

    name = "consumer offsets"
    period_seconds = 10.0
    is_versioned = False

    def __init__(
        self,
        offsets: ConsumerOffsetTable,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        end_of: Callable[[str, int], int],
        barrier: LogBarrier,
    ) -> None:
        """`end_of` returns the next offset of a queue by topic and queue id."""
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._end_of = end_of
        self._barrier = barrier
        self._masters: Offsets = {}  # in the last answer
        self._masters_resets: Offsets = {}  # as applied last
        self._first_own = 0  # of many own commits, the one to begin with
        self._is_refused = False

    async def sync(self, master: Master) -> None:
        """Ask for the master's offsets, and commit own ones there.

        Raises RequestError, MetadataError, BodyError.
        """
        body = await master.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        answer = await asyncio.to_thread(SavedOffsets.decode, body)
        require_member(answer, "offset_table")
        self._give_up_own(answer.offset_table)
        self._masters = answer.offset_table
        self._barrier.hold(self.name, partial(self._apply, answer))
        await self._pass_on(master)

    def master_changed(self) -> None:
        """Forget the offsets of the master before; those of another may be lower without a reset."""
        self._masters = {}

    # --- own commits ---

    def _give_up_own(self, masters: Offsets) -> None:
        """Give up own commits that the master has, or that it has reset."""
        for key, own in list(self._offsets.own_commits.items()):
            now, before = masters.get(key, {}), self._masters.get(key, {})
            for queue_id, offset in list(own.items()):
                masters_offset = now.get(queue_id, NO_OFFSET)
                if masters_offset >= offset or masters_offset < before.get(queue_id, NO_OFFSET):
                    self._offsets.drop_own_commit(key, queue_id)

    async def _pass_on(self, master: Master) -> None:
        """Commit own commits at the master; the next answer shows whether it has them."""
        passed, refused, cause = 0, 0, ""
        for key, queue_id, offset in self._next_own():
            topic, group = split_key(key)
            try:
                await self._commit(master, group, topic, queue_id, offset)
                passed += 1
            except MetadataError as error:
                refused, cause = refused + 1, str(error)
        if passed:
            log.info(
                "offsets committed at this replica passed on to the master count=%d master=%s",
                passed,
                master.address,
            )
        if refused and not self._is_refused:
            log.warning(
                "offsets committed at this replica not taken by the master count=%d cause=%s; kept here, and "
                "retried",
                refused,
                cause,
            )
        self._is_refused = bool(refused)

    async def _commit(self, master: Master, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit at the master, with a group that it may not know. Raises RequestError, MetadataError."""
        try:
            await master.commit(group, topic, queue_id, offset)
        except MetadataError as error:
            config = self._groups.get(group)
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST or config is None:
                raise
            await master.create_group(config)
            log.info("consumer group created at the master group=%s master=%s", group, master.address)
            await master.commit(group, topic, queue_id, offset)

    def _next_own(self) -> list[tuple[str, int, int]]:
        """Return own commits with key and queue id: all, or the next ones of many."""
        own = [
            (key, queue_id, offset)
            for key, offsets in self._offsets.own_commits.items()
            for queue_id, offset in offsets.items()
        ]
        if len(own) <= _MOST_COMMITS:
            return own
        first = self._first_own % len(own)
        self._first_own = first + _MOST_COMMITS
        return (own[first:] + own[:first])[:_MOST_COMMITS]

    # --- the master's offsets ---

    async def _apply(self, answer: SavedOffsets) -> None:
        """Replace the offsets by the master's, except own commits."""
        count = 0
        for key, masters in answer.offset_table.items():
            self._offsets.follow_entry(key, self._merged(key, masters))
            count += 1 + len(masters)
            if count >= _OFFSETS_PER_SLICE:
                count = 0
                await asyncio.sleep(0)
        for key in self._offsets.entry_keys():
            if key not in answer.offset_table and self._is_gone(key):
                self._offsets.follow_entry(key, {})
        self._offsets.follow_resets(self._pending_resets(answer.reset_marks))
        self._masters_resets = answer.reset_marks
        if answer.data_version is not None:
            self._offsets.data_version = answer.data_version

    def _merged(self, key: str, masters: dict[int, int]) -> dict[int, int]:
        """Return the offsets to have here, none behind the end of its queue.

        If all messages of a queue had expired before this replica began, its queue begins at 0 here.
        """
        topic, _ = split_key(key)
        merged = {**masters, **self._offsets.own_commits.get(key, {})}
        return {queue_id: min(offset, self._end_of(topic, queue_id)) for queue_id, offset in merged.items()}

    def _is_gone(self, key: str) -> bool:
        """Whether the master has deleted the topic or the group of offsets that it lacks."""
        topic, group = split_key(key)
        is_known = topic in self._topics and group in self._groups
        return not is_known and key not in self._offsets.own_commits

    def _pending_resets(self, masters: Offsets) -> Offsets:
        """Return the resets of the master without those that consumers here have received already."""
        pending: Offsets = {}
        for key, marks in masters.items():
            topic, group = split_key(key)
            known = self._masters_resets.get(key, {})
            for queue_id, offset in marks.items():
                if known.get(queue_id) != offset or self._offsets.has_reset(group, topic, queue_id):
                    pending.setdefault(key, {})[queue_id] = offset
        return pending
