"""Intervals and delays of consumers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsumerTiming:
    """Intervals and delays of a consumer, in seconds. The defaults are Apache's (RocketMQ 5.3.3)."""

    rebalance_seconds: float = 20.0
    rebalance_again_seconds: float = 1.0  # after a failed one, and between any two
    takeover_seconds: float = 0.5  # so that the previous member can commit
    commit_seconds: float = 5.0
    retry_seconds: float = 5.0  # after a message could not be sent back, or found all workers busy
    consume_timeout_seconds: float = 900.0  # a message in a call for longer is sent back
    lock_renewal_seconds: float = 20.0  # of queues that are consumed in order
    drop_wait_seconds: float = 1.0  # for calls in progress, when a queue is given up
    flow_control_pause_seconds: float = 0.05
    busy_pause_seconds: float = 0.02
    error_pause_seconds: float = 3.0
    suspended_pause_seconds: float = 1.0
    stuck_seconds: float = 120.0  # without a pull: the queue is dropped and rebuilt
    stop_grace_seconds: float = 10.0
