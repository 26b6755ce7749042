"""Reading for pulls: one look into the queue, and the offsets that come before it.

A pending reset of the group, and the known offset of a broadcasting member, decide before the queue is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..offsets.table import NO_OFFSET
from ..store.api import ColdRead, GetStatus
from .outcomes import Found, Moved, NotFound, Outcome, outcome_of

if TYPE_CHECKING:
    from ..offsets.broadcast import BroadcastOffsets
    from ..offsets.table import ConsumerOffsetTable
    from ..store.api import MessageStore
    from .cold_groups import ColdReadGroups
    from .request import Pull


class PullReading:
    """Reads queues for pulls. Messages that are not in memory become a `ColdRead`."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsetTable,
        broadcast: BroadcastOffsets,
        cold_groups: ColdReadGroups,
    ) -> None:
        """`cold_groups` counts cold messages that are found in memory."""
        self._cold_groups = cold_groups
        self._store = store
        self._offsets = offsets
        self._broadcast = broadcast

    def first_look(self, pull: Pull, most_messages: int = 0) -> Outcome | ColdRead:
        """Look into the queue for a pull that has just arrived, and commit the offset that it carries.

        `most_messages`: how many it gets at most, where that is not up to its client; else 0.
        """
        reset = self.take_reset(pull)
        if reset is not None:
            # The commit offset dates from before the reset.
            return reset
        plan = pull.plan
        if plan.broadcast_member is not None:
            known = self._offset_of_member(pull, plan.broadcast_member)
            if known is not None:
                return known
        if plan.commits:
            self._commit(pull)
        return self.read(pull, pull.queue_offset, most_messages)

    def take_reset(self, pull: Pull) -> Moved | None:
        """Return where the group continues, if it was reset since its last pull."""
        header = pull.plan.header
        offset = self._offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        return None if offset == NO_OFFSET else self._moved(pull, offset)

    def read(self, pull: Pull, offset: int, most_messages: int = 0) -> Outcome | ColdRead:
        """Read the queue from `offset` on; `most_messages` as for `first_look`."""
        plan = pull.plan
        header, wanted = plan.header, plan.wanted
        if self._store.holds_reads:
            return self._held(pull, offset)
        read = self._store.read_now(
            plan.queue,
            offset,
            most_messages or header.max_msg_nums,
            wanted.tags_codes,
            header.max_msg_bytes or 0,
            wanted.properties,
        )
        if isinstance(read, ColdRead):
            return read
        if read.cold_bytes:
            self._cold_groups.count(header.consumer_group, read.cold_bytes)
        if read.status is GetStatus.FOUND:  # the usual outcome, without a further call
            return Found(read)
        return outcome_of(read, pull.queue_offset)

    def _held(self, pull: Pull, offset: int) -> NotFound:
        """Return the outcome while consumers wait, as at the end of the queue."""
        topic, queue_id = pull.plan.header.topic, pull.plan.header.queue_id
        lowest, highest = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        return NotFound(GetStatus.OFFSET_OVERFLOW_ONE, offset, lowest, highest)

    def note_broadcast_member(self, pull: Pull, outcome: Outcome) -> None:
        """Remember how far a broadcasting member has read, in case it moves to a proxy or back."""
        plan = pull.plan
        if plan.broadcast_member is not None:
            read_up_to = outcome.next_offset if isinstance(outcome, Moved) else pull.queue_offset
            self._broadcast.pulled(plan.broadcast_member, plan.header, read_up_to)

    def _offset_of_member(self, pull: Pull, client_id: str) -> Moved | None:
        """Return where a member continues that moved between a proxy and the broker."""
        header = pull.plan.header.at(pull.queue_offset, pull.commit_offset)
        offset = self._broadcast.first_offset(client_id, header)
        return None if offset == NO_OFFSET else self._moved(pull, offset)

    def _moved(self, pull: Pull, offset: int) -> Moved:
        topic, queue_id = pull.plan.header.topic, pull.plan.header.queue_id
        lowest, highest = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        return Moved(GetStatus.OFFSET_RESET, offset, lowest, highest)

    def _commit(self, pull: Pull) -> None:
        """Commit the offset that the pull carries; ignore one outside the queue: no response could say so."""
        plan, offset = pull.plan, pull.commit_offset
        if 0 <= offset <= (0 if plan.queue is None else plan.queue.max_offset):
            self._offsets.commit_of(plan.offsets_key, plan.header.queue_id, offset, pull.connection)
