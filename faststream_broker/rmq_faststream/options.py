"""Options of messages, and of the SDK's producers and consumers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypedDict

from rmq_client import (
    Allocation,
    BatchPolicy,
    Compression,
    ConsumeHook,
    ConsumerTiming,
    ErrorListener,
    FaultTolerance,
    FlowControl,
    InFlightLimits,
    PopSettings,
    PullSettings,
    RetryPolicy,
    SendHook,
    ShareListener,
    Tracing,
)
from rmq_client import TransactionCheck as Check


class MessageOptions(TypedDict, total=False):
    """RocketMQ's options of a message; the last three schedule a later delivery, one of them.

    `tag`: one tag, by which consumers filter. `keys`: keys by which the message can be queried. Messages with
    the same `sharding_key` go to one queue. `delay_level`: one of the brokers' levels, 1 the shortest.
    `delay_seconds`: seconds or a timedelta. `deliver_at`: a time with a time zone.
    """

    tag: str | None
    keys: str | Sequence[str]
    sharding_key: str | None
    delay_level: int
    delay_seconds: float | timedelta
    deliver_at: datetime | None


class ProducerOptions(TypedDict, total=False):
    """Arguments of `rmq_client.Producer`, for `RocketBroker(producer_options=...)`."""

    retry: RetryPolicy
    fault_tolerance: FaultTolerance | None
    batching: BatchPolicy | None
    check_transaction: Check | None
    compression: Compression | None
    limits: InFlightLimits
    hooks: Sequence[SendHook]
    trace: Tracing | None
    max_message_bytes: int
    new_topic_queues: int


class ConsumerOptions(TypedDict, total=False):
    """Arguments of `rmq_client.PushConsumer`, for `broker.subscriber(consumer_options=...)`."""

    hooks: Sequence[ConsumeHook]
    trace: Tracing | None
    offsets_folder: str | Path
    pull: PullSettings
    flow_control: FlowControl
    allocation: Allocation
    share_listener: ShareListener | None
    error_listener: ErrorListener | None
    client_rebalance: bool
    pop: PopSettings
    timing: ConsumerTiming
