"""Metrics of transactions, under Apache's names if it has one (5.3.3, BrokerMetricsManager)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.exposition import Family, counter

if TYPE_CHECKING:
    from .service import TransactionService

_BY_TOPIC: Final = ("topic",)


class TransactionCollector:
    """Collects the metrics of transactions in progress, of outcomes and of checks."""

    def __init__(self, transactions: TransactionService) -> None:
        self._transactions = transactions

    def collect(self) -> Iterable[Family]:
        """Return all families of transactions."""
        transactions = self._transactions
        ending, checks, requests = transactions.ending, transactions.checks, transactions.check_requests
        yield Family(
            "rocketmq_half_messages",
            "gauge",
            "Messages of transactions that have not ended.",
            _series(transactions.halves.counts),
            _BY_TOPIC,
        )
        for name, meaning, counts in (
            ("rocketmq_commit_messages_total", "Transactions committed.", ending.committed),
            ("rocketmq_rollback_messages_total", "Transactions rolled back.", ending.rolled_back),
        ):
            yield Family(name, "counter", meaning, _series(counts), _BY_TOPIC)
        yield Family(
            "rocketmq_finish_message_latency_milliseconds",
            "histogram",
            "Time from send to commit; in seconds, in spite of the name, as Apache's.",
            [((topic,), latency) for topic, latency in ending.latency_seconds.copy().items()],
            _BY_TOPIC,
        )
        yield counter(
            "rmq_transaction_ends_refused_total",
            "Commits and rollbacks refused: of another group, forged, too late; the debug log says why.",
            ending.refused,
        )
        yield counter("rmq_transaction_checks_total", "Check requests sent to producers.", requests.sent)
        yield counter(
            "rmq_transaction_checks_unasked_total",
            "Check requests not sent, because no producer of the group was connected.",
            requests.unsent,
        )
        yield counter(
            "rmq_transactions_given_up_total",
            "Transactions given up: their messages were moved to TRANS_CHECK_MAX_TIME_TOPIC.",
            checks.given_up,
        )
        yield counter(
            "rmq_transactions_lost_total",
            "Transactions dropped, because their half messages could not be read; the log names them.",
            checks.lost,
        )


def _series(counts: Counter[str]) -> list[tuple[tuple[str, ...], int]]:
    return [((topic,), count) for topic, count in counts.copy().items()]
