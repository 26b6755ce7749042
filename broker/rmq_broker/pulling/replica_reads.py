"""Division of reading between a master and its replicas.

Source: Apache RocketMQ 5.3.3, PullMessageProcessor.composeResponseHeader, rejectRequest. A replica of
Apache's with `slaveReadEnable` off answers SYSTEM_BUSY to all pulls, also when the master is gone. Here a
replica serves all consumers while it has no master.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode

from ..store.api import GetStatus
from .outcomes import Moved, NotFound, Skipped

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand

    from .outcomes import Empty
    from .request import Pull

# The consumer's offset is behind the end of the queue here.
_AHEAD: Final = (
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.NO_MESSAGE_IN_QUEUE,
    GetStatus.NO_MATCHED_LOGIC_QUEUE,
)
_REDIRECTED: Final = "the master serves this queue"


class ReplicaReads:
    """Decides which pulls the other brokers of the group serve."""

    def __init__(
        self, is_replica: bool, has_master: Callable[[], bool], has_replicas: Callable[[], bool]
    ) -> None:
        """`has_master` tells whether this replica follows a master now, `has_replicas` whether it has any."""
        self._is_replica = is_replica
        self._has_master = has_master
        self._has_replicas = has_replicas

    @property
    def serve_old_messages(self) -> bool:
        """Whether a replica can serve messages that are no longer in memory here."""
        return self._is_replica or self._has_replicas()

    def redirected(self, pull: Pull, outcome: Empty) -> RemotingCommand | None:
        """Return the answer that sends a consumer at the tail of a queue back to the master.

        None if this broker answers, or holds, the pull itself.
        """
        if not self._is_replica or not self._has_master():
            return None
        following = outcome.next_offset if isinstance(outcome, Skipped) else pull.queue_offset
        header = pull.plan.answers.header(following, outcome.min_offset, outcome.max_offset)
        return pull.command.response(ResponseCode.PULL_RETRY_IMMEDIATELY, _REDIRECTED, header.encode())

    def corrected(self, asked_offset: int, outcome: Empty) -> Empty:
        """Return the outcome of a pull, which moves no consumer on a replica that lags.

        A consumer may have read messages of the master that the replica does not have yet. It must not get
        PULL_OFFSET_MOVED, not even with its own offset: clients then drop the messages that they have pulled
        and not consumed yet, and continue behind them. So the pull waits, as at the tail of the queue.
        (Apache RocketMQ 5.3.3, DefaultPullMessageResultHandler with `offsetCheckInSlave` off, answers
        PULL_RETRY_IMMEDIATELY, and its clients ask again without a pause.)
        """
        if not self._is_replica or not isinstance(outcome, Moved) or outcome.status not in _AHEAD:
            return outcome
        return NotFound(outcome.status, asked_offset, outcome.min_offset, outcome.max_offset)
