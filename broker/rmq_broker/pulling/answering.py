"""The responses to pulls, and the counters of what they gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..filtering.message_filters import EVERYTHING
from .outcomes import Empty, Found, Skipped

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand

    from ..offsets.table import ConsumerOffsetTable
    from ..statistics.broker_statistics import BrokerStatistics, GroupStatistics
    from .replica_reads import ReplicaReads
    from .request import Pull, PullPlan


class PullAnswering:
    """Writes responses to pulls. Each notes how far the group has pulled the queue."""

    def __init__(
        self, offsets: ConsumerOffsetTable, statistics: BrokerStatistics, replicas: ReplicaReads
    ) -> None:
        self._replicas = replicas
        self._offsets = offsets
        self._statistics = statistics

    def found(self, pull: Pull, outcome: Found) -> bytes:
        """Return the encoded response with messages."""
        plan, read = pull.plan, outcome.read
        next_offset, count, body = read.next_offset, read.count, read.body
        self._offsets.note_pulled(plan.offsets_key, plan.header.queue_id, next_offset)
        self._statistics.pulls_found += 1
        statistics = plan.statistics or self._statistics_of(plan)
        if plan.wanted is not EVERYTHING:
            statistics.filtered_messages += max(0, next_offset - pull.queue_offset - count)
        statistics.answers += 1
        statistics.got_messages += count
        statistics.got_bytes += len(body)
        answers = plan.answers
        if read.reads_old_data and plan.answers_of_old is not None and self._replicas.serve_old_messages:
            answers = plan.answers_of_old
        return answers.found(pull.command, next_offset, read.min_offset, read.max_offset, body)

    def without_messages(self, pull: Pull, outcome: Empty) -> RemotingCommand:
        """Return the response that says where the client continues."""
        plan, next_offset = pull.plan, outcome.next_offset
        self._offsets.note_pulled(plan.offsets_key, plan.header.queue_id, next_offset)
        self._statistics.pulls_missed += 1
        if isinstance(outcome, Skipped) and plan.wanted is not EVERYTHING:
            statistics = plan.statistics or self._statistics_of(plan)
            statistics.filtered_messages += max(0, next_offset - pull.queue_offset)
        fields = plan.answers.header(next_offset, outcome.min_offset, outcome.max_offset).encode()
        return pull.command.response(outcome.code, outcome.status.value, fields)

    def _statistics_of(self, plan: PullPlan) -> GroupStatistics:
        statistics = self._statistics.of_group(plan.header.consumer_group, plan.header.topic)
        plan.statistics = statistics
        return statistics
