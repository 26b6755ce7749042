"""Bounds of transactions: queues and memory do not grow with the number of ended transactions."""

from __future__ import annotations

from pathlib import Path

from tests.unit.broker.transactions.parts import (
    COMMIT,
    HALF,
    OP,
    ROLLBACK,
    SYSTEM_GROUP,
    TOPIC,
    TransactionBroker,
    place_of,
    question,
)

_ROUNDS = 40
_A_ROUND = 20


async def _round(broker: TransactionBroker) -> None:
    """Run transactions that end, with the periodic work in between."""
    for number in range(_A_ROUND):
        broker.end(COMMIT if number % 2 else ROLLBACK, broker.send(b"ended"))
    await broker.check_after(30)
    broker.service.ops.write()
    for _ in range(2):
        broker.store.commit_log.flush()
        broker.service.progress.look()


def _needed(broker: TransactionBroker, topic: str) -> int:
    """Return the number of messages in a queue that a start would read."""
    return broker.store.max_offset(topic, 0) - broker.offsets.query(SYSTEM_GROUP, topic, 0)


async def test_an_open_transaction_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """Each check appends it again, so that the log can be cleaned up to there."""
    broker = TransactionBroker(tmp_path, transactionCheckMax=2 * _ROUNDS, mappedFileSizeCommitLog=16 * 1024)
    broker.send(b"open")
    for _ in range(_ROUNDS):
        await _round(broker)
        assert _needed(broker, HALF) <= 1 + _A_ROUND
        assert _needed(broker, OP) <= 2
        assert len(broker.service.ops._written) <= 2
    broker.store.flush()
    commit_log = broker.store.commit_log
    while len(commit_log.files) > 2 and commit_log.oldest_file is not None:
        commit_log.oldest_file.unlink()
        commit_log.remove_oldest()
    assert commit_log.min_offset > 0

    after = await broker.restarted()

    producer = after.join()
    await after.check_after(30)
    after.end(COMMIT, place_of(question(producer)[0]), from_transaction_check=True)
    assert after.service.ending.committed == {TOPIC: 1}
    assert len(after.halves) == 0
    after.store.close()


async def test_transactions_without_an_outcome_are_given_up(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path, transactionCheckMax=3)
    for _ in range(_ROUNDS):
        for _ in range(_A_ROUND):
            broker.send()
        await _round(broker)
        assert len(broker.halves) <= 4 * _A_ROUND
        assert _needed(broker, HALF) <= 6 * _A_ROUND
    for _ in range(4):
        await _round(broker)
    assert len(broker.halves) == 0
    assert broker.service.checks.given_up == _ROUNDS * _A_ROUND
    assert _needed(broker, HALF) == 0
    broker.store.close()
