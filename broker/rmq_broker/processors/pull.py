"""Pulls: codes 11 and 361 (Apache RocketMQ 5.3.3, PullMessageProcessor)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rmq_remoting.answers import Eventual

from ..pulling.outcomes import Found, NotFound, Outcome
from ..pulling.request import LogicalQueue
from ..store.api import ColdRead

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.configuration import Change

    from ..delivery.waiting_requests import Look, LookResult
    from ..pulling.admission import PullAdmission
    from ..pulling.answering import PullAnswering
    from ..pulling.cold_flow_control import ColdFlowControl
    from ..pulling.cold_pulls import ColdPulls
    from ..pulling.holding import PullHolding
    from ..pulling.reading import PullReading
    from ..pulling.replica_reads import ReplicaReads
    from ..pulling.request import Pull
    from ..static_topics.pulls import LogicalPulls


class PullProcessor:
    """Takes a pull through its states: admitted, read, and answered or held (see `pulling`)."""

    def __init__(
        self,
        admission: PullAdmission,
        reading: PullReading,
        holding: PullHolding,
        answering: PullAnswering,
        cold: ColdPulls,
        replicas: ReplicaReads,
        logical: LogicalPulls,
        flow: ColdFlowControl,
    ) -> None:
        """`logical` translates pulls from static topics; `flow` slows cold reads down."""
        self._flow = flow
        # Empty unless flow control is on: a cheap test on the path of each pull.
        self._cold_accounts = flow.accounts
        self._admission = admission
        self._reading = reading
        self._holding = holding
        self._answering = answering
        self._cold = cold
        self._replicas = replicas
        self._logical = logical
        self.caches = admission.caches

    def settings_changed(self, change: Change) -> None:
        """Check every stream of pulls again; called after each change of the settings."""
        self._admission.settings_changed(change)

    def pull(self, connection: Connection, command: RemotingCommand) -> Eventual:
        """Answer a pull with messages, or hold it until there are some.

        Raises CommandError for a refused pull, HeaderError, HeaderDecodeError.
        """
        if connection.is_closed:
            return None  # a reset that is taken here would be told to nobody
        try:
            pull = self._admission.admit(connection, command)
        except LogicalQueue:
            return self._logical.pull(connection, command, self.pull)
        if self._cold_accounts and self._flow.slows(pull):
            held = self._flow.slow_down(pull, partial(self._read_one, pull))
            if held is not None:
                return held
        outcome = self._reading.first_look(pull)
        if isinstance(outcome, ColdRead):
            return self._cold.finish(pull, outcome, partial(self._answer_cold, pull))
        return self._answer(pull, outcome)

    def _read_one(self, slowed: Pull) -> Look:
        """Read one message for a pull that flow control has held; it is not held again.

        Raises CommandError if the pull would be refused now.
        """
        pull = self._admission.admit_again(slowed)
        outcome = self._reading.first_look(pull, 1)
        if isinstance(outcome, ColdRead):
            return self._cold.finish(pull, outcome, partial(self._answer_slowed, pull))
        return self._answer_slowed(pull, outcome)

    def _answer_slowed(self, pull: Pull, outcome: Outcome) -> LookResult:
        if isinstance(outcome, Found):
            return self._answering.found(pull, outcome)
        return self._answering.without_messages(pull, self._replicas.corrected(pull.queue_offset, outcome))

    def _answer(self, pull: Pull, outcome: Outcome) -> Eventual:
        if pull.plan.broadcast_member is not None:
            self._reading.note_broadcast_member(pull, outcome)
        if isinstance(outcome, Found):
            return self._answering.found(pull, outcome)
        redirected = self._replicas.redirected(pull, outcome)
        if redirected is not None:
            return redirected
        outcome = self._replicas.corrected(pull.queue_offset, outcome)
        if isinstance(outcome, NotFound) and pull.plan.may_be_held:
            return self._holding.hold(pull)
        if pull.plan.header.logical is False and pull.plan.queue is not None:
            # A part of a static topic's queue. The consumer must not continue with the next part while
            # messages of this one are still being flushed or replicated.
            outcome.max_offset = max(outcome.max_offset, pull.plan.queue.next_offset)
        return self._answering.without_messages(pull, outcome)

    def _answer_cold(self, pull: Pull, outcome: Outcome) -> Eventual:
        """Answer after reading in a thread; changes of topic, group and subscription meanwhile count."""
        return self._answer(self._admission.admit_again(pull), outcome)
