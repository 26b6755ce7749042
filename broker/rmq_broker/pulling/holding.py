"""Holding pulls (long polling): a pull that found nothing waits for a message, within a time.

Source: Apache RocketMQ 5.3.3, PullRequestHoldService.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Answer
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

from ..delivery.waiting_requests import STILL_WAITING, Look, held_bytes
from ..store.api import ColdRead, GetStatus
from .outcomes import Found, NotFound, Outcome, Skipped

if TYPE_CHECKING:
    from ..settings.broker import BrokerSettings
    from ..store.api import MessageStore
    from .admission import PullAdmission
    from .answering import PullAnswering
    from .cold_pulls import ColdPulls
    from .held_pulls import HeldPulls
    from .reading import PullReading
    from .replica_reads import ReplicaReads
    from .request import Pull

# Reads per wake-up. A client whose filter rejects that many messages asks again: other pulls wait, too.
_MAX_READS: Final = 2


@dataclass(slots=True, eq=False)
class HeldState:
    """State of a held pull: by which plan it reads, and from which offset."""

    pull: Pull
    read_from: int

    def admitted_again(self, pull: Pull) -> None:
        """The broker's tables have changed: another filter begins where the client asked to read."""
        if pull.plan.wanted != self.pull.plan.wanted:
            self.read_from = pull.queue_offset
        self.pull = pull

    def skipped_to(self, offset: int) -> None:
        """The messages before `offset` do not pass the filter."""
        self.read_from = offset

    @property
    def has_skipped(self) -> bool:
        """Whether the client has to learn where to continue, or the same messages are searched again."""
        return self.read_from != self.pull.queue_offset


class PullHolding:
    """Holds pulls, and looks into their queues again when they are woken."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        held: HeldPulls,
        admission: PullAdmission,
        reading: PullReading,
        answering: PullAnswering,
        cold: ColdPulls,
        replicas: ReplicaReads,
    ) -> None:
        self._settings = settings
        self._store = store
        self._held = held
        self._admission = admission
        self._reading = reading
        self._answering = answering
        self._cold = cold
        self._replicas = replicas

    def hold(self, pull: Pull) -> asyncio.Future[Answer]:
        """Return the future answer of a pull that found nothing.

        Raises CommandError (SYSTEM_BUSY) if too many are held: Apache's clients then pull again after 3 s.
        After the answer that there is no message they would pull again at once.
        """
        settings, header = self._settings, pull.plan.header
        if not self._held.has_share(pull.connection, pull.command, settings.max_held_pulls):
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                f"[REJECTREQUEST]system busy: {self._held.count} pulls without a message are held already, "
                f"too many in all or of this connection (maxHeldPulls={settings.max_held_pulls})",
            )
        wait_ms = settings.short_polling_time_ms
        if settings.long_polling_enable:
            wait_ms = min(max(0, header.suspend_timeout_ms), settings.long_polling_max_hold_ms)
        queue = self._store.queues.get_or_create(header.topic, header.queue_id)
        look = partial(self._look, HeldState(pull, pull.queue_offset))
        return self._held.hold(pull.connection, queue, wait_ms / 1000, look, held_bytes(pull.command))

    def _look(self, state: HeldState, time_is_up: bool) -> Look:
        """Look again. Raises CommandError, for instance if the topic was deleted meanwhile."""
        pull = self._admission.admit_again(state.pull)
        if pull is not state.pull:
            state.admitted_again(pull)
        reset = self._reading.take_reset(pull)
        if reset is not None:
            return self._answering.without_messages(pull, reset)
        outcome = self._reading.read(pull, state.read_from)
        if isinstance(outcome, Found):
            return self._answering.found(pull, outcome)
        return self._conclude(state, time_is_up, outcome, reads=1)

    def _conclude(
        self, state: HeldState, time_is_up: bool, outcome: Outcome | ColdRead, *, reads: int
    ) -> Look:
        """Answer the pull with the outcome, read once more behind skipped messages, or keep it waiting."""
        pull = state.pull
        while not isinstance(outcome, Found):
            if isinstance(outcome, ColdRead):
                return self._cold.finish(
                    pull, outcome, partial(self._conclude, state, time_is_up, reads=reads)
                )
            if not isinstance(outcome, Skipped):
                break
            state.skipped_to(outcome.next_offset)
            if outcome.is_at_end:
                break
            if reads >= _MAX_READS:
                return self._answering.without_messages(pull, outcome)
            outcome = self._reading.read(pull, state.read_from)
            reads += 1
        if isinstance(outcome, Found):
            return self._answering.found(pull, outcome)
        outcome = self._replicas.corrected(state.read_from, outcome)
        if isinstance(outcome, (NotFound, Skipped)):
            if not time_is_up:
                return STILL_WAITING
            if state.has_skipped:
                outcome = Skipped(
                    GetStatus.NO_MATCHED_MESSAGE, outcome.next_offset, outcome.min_offset, outcome.max_offset
                )
        return self._answering.without_messages(pull, outcome)
