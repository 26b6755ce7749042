"""State of a push consumer for administrators."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from rmq_remoting.bodies.heartbeat import ConsumeType
from rmq_remoting.bodies.running_info import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    PROP_THREADPOOL_CORE_SIZE,
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)

from ..offsets.offset_store import OffsetStore
from ..processing.message_state import MessageState
from ..processing.process_queue import ProcessQueue
from ..processing.statistics import ConsumerStatistics, TopicRecorder
from ..subscription import Subscription
from .engine_settings import EngineSettings

# Release whose clients this one behaves like, by the name that Apache's tools know.
_VERSION_NAME: Final = "V5_3_3"


def running_info(
    settings: EngineSettings,
    subscriptions: Iterable[Subscription],
    process_queues: Iterable[ProcessQueue],
    offsets: OffsetStore,
    statistics: ConsumerStatistics,
    *,
    addresses: Iterable[str],
    started_ms: int,
    now: float,
) -> ConsumerRunningInfo:
    """Return the whole state; `addresses` are the name servers', `now` is of the clock of all times here."""
    orderly = settings.kind.orderly
    data = [subscription.data for subscription in subscriptions]
    return ConsumerRunningInfo(
        properties={
            PROP_NAMESERVER_ADDR: ";".join(addresses) + ";",
            PROP_CONSUME_TYPE: ConsumeType.CONSUME_PASSIVELY.value,
            PROP_CONSUME_ORDERLY: str(orderly).lower(),
            PROP_THREADPOOL_CORE_SIZE: str(settings.workers),
            PROP_CONSUMER_START_TIMESTAMP: str(started_ms),
            PROP_CLIENT_VERSION: _VERSION_NAME,
        },
        subscription_set=data,
        mq_table={one.queue: _queue_info(one, offsets, orderly, now) for one in process_queues},
        status_table={one.topic: _topic_status(statistics.topics.get(one.topic), now) for one in data},
    )


def _queue_info(
    process_queue: ProcessQueue, offsets: OffsetStore, orderly: bool, now: float
) -> ProcessQueueInfo:
    """Return the state of one queue."""

    def wall_ms(moment: float | None) -> int:
        return 0 if moment is None else int((moment - now + time.time()) * 1000)

    # Messages in a call of an ordered listener, or not committed yet.
    begun = process_queue.in_state(MessageState.INFLIGHT) if orderly else []
    return ProcessQueueInfo(
        cached_msg_count=len(process_queue),
        cached_msg_min_offset=process_queue.min_offset or 0,
        cached_msg_max_offset=process_queue.max_offset or 0,
        cached_msg_size_mib=process_queue.bytes // (1024 * 1024),
        transaction_msg_count=len(begun),
        transaction_msg_min_offset=begun[0].queue_offset if begun else 0,
        transaction_msg_max_offset=begun[-1].queue_offset if begun else 0,
        commit_offset=offsets.get(process_queue.queue) or 0,
        dropped=process_queue.dropped,
        locked=process_queue.last_locked_at is not None and now < process_queue.lock_expires_at,
        try_unlock_times=process_queue.unlock_attempts,
        last_lock_timestamp=wall_ms(process_queue.last_locked_at),
        last_pull_timestamp=wall_ms(process_queue.last_pull_at),
        last_consume_timestamp=wall_ms(process_queue.last_consumed_at),
    )


def _topic_status(recorder: TopicRecorder | None, now: float) -> ConsumeStatus:
    """Return the statistics of one topic; empty if nothing was consumed."""
    if recorder is None:
        return ConsumeStatus()
    statistics = recorder.statistics(now)
    return ConsumeStatus(
        consume_failed_msgs=statistics.refused_last_hour,
        consume_failed_tps=statistics.refused_per_second,
        consume_ok_tps=statistics.consumed_per_second,
        consume_time_ms=statistics.call_ms,
        pull_time_ms=statistics.pull_ms,
        pull_tps=statistics.pulled_per_second,
    )
