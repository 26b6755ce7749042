"""Settings of transactions."""

from __future__ import annotations

from rmq_remoting.daemon.settings import (
    Count,
    JavaBoolean,
    Milliseconds,
    SettingsGroup,
    live,
)


class TransactionSettings(SettingsGroup):
    """Transactions"""

    transaction_timeout_ms: Milliseconds = live(
        6000,
        "transactionTimeOut",
        "Age of a transaction at which the broker first checks it with a producer of its group.",
    )
    transaction_check_interval_ms: Milliseconds = live(
        30_000, "transactionCheckInterval", "Period of the checks of open transactions."
    )
    transaction_check_max: Count = live(
        15,
        "transactionCheckMax",
        "Most checks of a transaction; then its message goes to `TRANS_CHECK_MAX_TIME_TOPIC`.",
    )
    reject_transaction_message: JavaBoolean = live(
        False, "rejectTransactionMessage", "Refuse transactional messages."
    )
    transaction_pending_max: Count = live(
        300_000,
        "transactionPendingMax",
        "Most open transactions; each takes a third of a kilobyte of memory.",
        ours=True,
    )
    transaction_op_message_max_bytes: Count = live(
        4096,
        "transactionOpMsgMaxSize",
        "Size at which the ends of transactions that were collected in one record are written at once.",
        unit="bytes",
    )
    transaction_op_batch_interval_ms: Milliseconds = live(
        100,
        "transactionOpBatchInterval",
        "Longest time for which they are collected; a killed broker checks again the transactions "
        "whose ends were not written.",
    )
    transaction_metric_flush_interval_ms: Milliseconds = live(
        3000, "transactionMetricFlushInterval", "Period in which `config/transactionMetrics` is written."
    )
