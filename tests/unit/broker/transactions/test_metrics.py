"""Metrics of transactions: those in progress, and the outcomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.transactions.metrics import TransactionCollector
from rmq_remoting.errors import CommandError
from tests.unit.broker.transactions.parts import COMMIT, ROLLBACK, TOPIC, TransactionBroker


async def test_each_transaction_is_counted(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path, transactionCheckMax=1)
    places = [broker.send(b"%d" % number) for number in range(4)]
    broker.end(COMMIT, places[0])
    broker.end(ROLLBACK, places[1])
    broker.join()
    await broker.check_after(6)
    broker.end(COMMIT, places[2])
    await broker.check_after(30)
    broker.send(b"4")
    with pytest.raises(CommandError):
        broker.end(ROLLBACK, places[0])

    found = {family.name: family for family in TransactionCollector(broker.service).collect()}

    assert found["rocketmq_half_messages"].series == [((TOPIC,), 1)]
    assert found["rocketmq_commit_messages_total"].series == [((TOPIC,), 2)]
    assert found["rocketmq_rollback_messages_total"].series == [((TOPIC,), 1)]
    [(labels, latency)] = found["rocketmq_finish_message_latency_milliseconds"].series
    assert (labels, getattr(latency, "total", None)) == ((TOPIC,), 6)
    assert found["rmq_transaction_ends_refused_total"].series == [((), 1)]
    assert found["rmq_transaction_checks_total"].series == [((), 2)]
    assert found["rmq_transaction_checks_unasked_total"].series == [((), 0)]
    assert found["rmq_transactions_given_up_total"].series == [((), 1)]
    assert found["rmq_transactions_lost_total"].series == [((), 0)]
    broker.store.close()
