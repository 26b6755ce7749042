"""Settings of the tiers that requests run in."""

from __future__ import annotations

import os

from rmq_remoting.daemon.settings import (
    Count,
    JavaBoolean,
    Milliseconds,
    SettingsGroup,
    ThreadCount,
    setting,
)


class TierSettings(SettingsGroup):
    """Tiers of work

    Each tier limits how many requests may wait and for how long. The broker answers a request beyond a limit
    with SYSTEM_BUSY.
    """

    broker_fast_failure_enable: JavaBoolean = setting(
        True, "brokerFastFailureEnable", "Refuse requests that have waited too long."
    )
    send_queue_capacity: Count = setting(10_000, "sendThreadPoolQueueCapacity", "Most waiting sends.")
    send_max_wait_ms: Milliseconds = setting(200, "waitTimeMillsInSendQueue", "Longest wait of a send.")
    reply_queue_capacity: Count = setting(
        10_000, "replyThreadPoolQueueCapacity", "Most waiting replies to requests of clients."
    )
    pull_queue_capacity: Count = setting(
        100_000, "pullThreadPoolQueueCapacity", "Most waiting pulls and pops, held ones excluded."
    )
    pull_max_wait_ms: Milliseconds = setting(
        5000, "waitTimeMillsInPullQueue", "Longest wait of a pull, the time for which it is held excluded."
    )
    lite_pull_queue_capacity: Count = setting(
        100_000, "litePullThreadPoolQueueCapacity", "Most waiting lite pulls, held ones excluded."
    )
    lite_pull_max_wait_ms: Milliseconds = setting(
        5000,
        "waitTimeMillsInLitePullQueue",
        "Longest wait of a lite pull, the time for which it is held excluded.",
    )
    pull_cold_threads: ThreadCount = setting(
        4,
        "pullColdThreadPoolNums",
        "Threads for pulls of messages that are not in memory.",
        ours=True,
    )
    pull_cold_queue_capacity: Count = setting(
        10_000, "pullColdThreadPoolQueueCapacity", "Most pulls that wait for such a thread.", ours=True
    )
    ack_queue_capacity: Count = setting(
        100_000, "ackThreadPoolQueueCapacity", "Most waiting acknowledgements of popped messages."
    )
    ack_max_wait_ms: Milliseconds = setting(
        3000, "waitTimeMillsInAckQueue", "Longest wait of an acknowledgement."
    )
    transaction_queue_capacity: Count = setting(
        100_000, "endTransactionPoolQueueCapacity", "Most waiting commits and rollbacks."
    )
    transaction_max_wait_ms: Milliseconds = setting(
        3000, "waitTimeMillsInTransactionQueue", "Longest wait of a commit or rollback."
    )
    heartbeat_queue_capacity: Count = setting(
        50_000, "heartbeatThreadPoolQueueCapacity", "Most waiting heartbeats."
    )
    heartbeat_max_wait_ms: Milliseconds = setting(
        31_000, "waitTimeMillsInHeartbeatQueue", "Longest wait of a heartbeat."
    )
    client_manager_queue_capacity: Count = setting(
        1_000_000,
        "clientManagerThreadPoolQueueCapacity",
        "Most waiting requests of clients about themselves.",
    )
    consumer_manager_queue_capacity: Count = setting(
        1_000_000, "consumerManagerThreadPoolQueueCapacity", "Most waiting requests about groups and offsets."
    )
    query_threads: ThreadCount = setting(
        key="queryMessageThreadPoolNums",
        meaning="Threads for queries of messages.",
        default_factory=lambda: 8 + (os.cpu_count() or 1),
        default_text="8 + cpus",
    )
    query_queue_capacity: Count = setting(
        20_000, "queryThreadPoolQueueCapacity", "Most waiting queries; their wait is not limited."
    )
    admin_threads: ThreadCount = setting(16, "adminBrokerThreadPoolNums", "Threads for admin requests.")
    admin_queue_capacity: Count = setting(
        10_000, "adminBrokerThreadPoolQueueCapacity", "Most waiting admin requests."
    )
    admin_max_wait_ms: Milliseconds = setting(
        5000, "waitTimeMillsInAdminBrokerQueue", "Longest wait of an admin request."
    )
