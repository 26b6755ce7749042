"""Flow control of cold reads: pulls of groups that read too many cold messages are refused or held.

Source: Apache RocketMQ 5.3.3, PullMessageProcessor and ColdDataPullRequestHoldService. A push consumer is
answered SYSTEM_BUSY, and pulls again later. Any other consumer's pull is held, and then gets one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Answer
from rmq_remoting.bodies.heartbeat import ConsumeType
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

from ..delivery.waiting_requests import Look, held_bytes

if TYPE_CHECKING:
    from ..clients.consumers import ConsumerTable
    from ..store.api import MessageStore
    from .cold_groups import ColdReadGroups
    from .held_pulls import HeldPulls
    from .request import Pull

# Apache's broker holds a pull for 3 to 8 s: for 3 s, and then until a check that runs every 5 s.
HOLD_SECONDS: Final = 3.0
_MAX_HELD: Final = 10_000

_REMARK: Final = "This consumer group is reading cold data. It has been flow control"


class ColdFlowControl:
    """Slows pulls down that read cold messages for a group above its threshold."""

    def __init__(
        self, store: MessageStore, groups: ColdReadGroups, consumers: ConsumerTable, held: HeldPulls
    ) -> None:
        """`held` keeps the pulls that are slowed down; no message wakes them."""
        self._store = store
        self._groups = groups
        self._consumers = consumers
        self._held = held
        self.accounts = groups.accounts
        self.refused = 0
        self.delayed = 0

    def slows(self, pull: Pull) -> bool:
        """Whether a pull has to be slowed down: its group is over its threshold, its message is cold."""
        queue = pull.plan.queue
        return (
            queue is not None
            and self._groups.is_over(pull.plan.header.consumer_group)
            and self._store.is_cold_from(queue, pull.queue_offset)
        )

    def slow_down(self, pull: Pull, read_one: Callable[[], Look]) -> asyncio.Future[Answer] | None:
        """Return the future answer of a held pull, which `read_one` gives; None where a pull goes on at once.

        Raises CommandError (SYSTEM_BUSY) for a push consumer, and if too many pulls are held.
        """
        group = pull.plan.header.consumer_group
        members = self._consumers.find_group(group)
        consume_type = None if members is None else members.consume_type
        if consume_type is ConsumeType.CONSUME_PASSIVELY:
            self.refused += 1
            raise CommandError(
                ResponseCode.SYSTEM_BUSY, f"{_REMARK}: threshold {self._groups.threshold(group)} bytes in 5 s"
            )
        if consume_type not in (None, ConsumeType.CONSUME_ACTIVELY):
            return None
        if not self._held.has_share(pull.connection, pull.command, _MAX_HELD):
            self.refused += 1
            raise CommandError(
                ResponseCode.SYSTEM_BUSY, f"{_REMARK}: {self._held.count} pulls are held for it already"
            )
        self.delayed += 1
        queue = pull.plan.queue
        assert queue is not None
        look = partial(_look, read_one)
        return self._held.hold(pull.connection, queue, HOLD_SECONDS, look, held_bytes(pull.command))


def _look(read_one: Callable[[], Look], time_is_up: bool) -> Look:
    return read_one()
