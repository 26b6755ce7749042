"""Intervals and delays of consumers."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import Seconds, check_seconds, set_fields, short_repr


@dataclass(frozen=True, slots=True, init=False, repr=False)
class ConsumerTiming:
    """Intervals and delays of a consumer: numbers of seconds, or timedeltas.

    The defaults are Apache's (RocketMQ 5.3.3).
    """

    rebalance_seconds: float
    rebalance_again_seconds: float  # after a failed one, and between any two
    takeover_seconds: float  # so that the previous member can commit
    commit_seconds: float  # 0: with every poll of a pull consumer
    retry_seconds: float  # after a message could not be sent back, or found all workers busy
    consume_timeout_seconds: float  # a message in a call for longer is sent back
    lock_renewal_seconds: float  # of queues that are consumed in order
    drop_wait_seconds: float  # for calls in progress, when a queue is given up
    flow_control_pause_seconds: float
    busy_pause_seconds: float
    error_pause_seconds: float
    suspended_pause_seconds: float
    stuck_seconds: float  # without a pull: the queue is dropped and rebuilt
    stop_grace_seconds: float

    __repr__ = short_repr

    def __init__(
        self,
        *,
        rebalance_seconds: Seconds = 20.0,
        rebalance_again_seconds: Seconds = 1.0,
        takeover_seconds: Seconds = 0.5,
        commit_seconds: Seconds = 5.0,
        retry_seconds: Seconds = 5.0,
        consume_timeout_seconds: Seconds = 900.0,
        lock_renewal_seconds: Seconds = 20.0,
        drop_wait_seconds: Seconds = 1.0,
        flow_control_pause_seconds: Seconds = 0.05,
        busy_pause_seconds: Seconds = 0.02,
        error_pause_seconds: Seconds = 3.0,
        suspended_pause_seconds: Seconds = 1.0,
        stuck_seconds: Seconds = 120.0,
        stop_grace_seconds: Seconds = 10.0,
    ) -> None:
        """Raises InvalidArgumentError for a negative time, and for an interval of 0."""
        set_fields(
            self,
            rebalance_seconds=check_seconds("rebalance_seconds", rebalance_seconds, above=0),
            rebalance_again_seconds=check_seconds(
                "rebalance_again_seconds", rebalance_again_seconds, above=0
            ),
            takeover_seconds=check_seconds("takeover_seconds", takeover_seconds),
            commit_seconds=check_seconds("commit_seconds", commit_seconds),
            retry_seconds=check_seconds("retry_seconds", retry_seconds, above=0),
            consume_timeout_seconds=check_seconds(
                "consume_timeout_seconds", consume_timeout_seconds, above=0
            ),
            lock_renewal_seconds=check_seconds("lock_renewal_seconds", lock_renewal_seconds, above=0),
            drop_wait_seconds=check_seconds("drop_wait_seconds", drop_wait_seconds),
            flow_control_pause_seconds=check_seconds(
                "flow_control_pause_seconds", flow_control_pause_seconds, above=0
            ),
            busy_pause_seconds=check_seconds("busy_pause_seconds", busy_pause_seconds, above=0),
            error_pause_seconds=check_seconds("error_pause_seconds", error_pause_seconds, above=0),
            suspended_pause_seconds=check_seconds(
                "suspended_pause_seconds", suspended_pause_seconds, above=0
            ),
            stuck_seconds=check_seconds("stuck_seconds", stuck_seconds, above=0),
            stop_grace_seconds=check_seconds("stop_grace_seconds", stop_grace_seconds),
        )
