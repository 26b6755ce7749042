"""Outcomes of transactions, and that they are final."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmq_client import Message, TimedOut, TransactionState, UsageError
from rmq_client.producer.transactions import Transaction, Transactions
from rmq_client.results import SendResult, SendStatus
from rmq_remoting.message_queue import MessageQueue
from tests.support.waiting import loop_passes, until

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


class _Transactions(Transactions):
    """Transactions without a broker: records outcomes; waits or fails if a test says so."""

    def __init__(self) -> None:
        instance = SimpleNamespace(settings=SimpleNamespace(namespace=""), bridge=lambda: None)
        super().__init__(cast(Any, instance), cast(Any, None), cast(Any, None), "g", None)
        self.told: list[TransactionState] = []
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.failures = 0
        self.tries = 0

    async def send_half(self, message: Message, **where: Any) -> SendResult:
        return SendResult(SendStatus.SEND_OK, "U", MessageQueue("T", "broker-a", 0), 0, "", "host:1")

    async def tell(
        self, message: Message, sent: SendResult, state: TransactionState, remark: str | None
    ) -> None:
        self.tries += 1
        await self.flowing.wait()
        if self.failures:
            self.failures -= 1
            raise TimedOut("not connected")
        self.told.append(state)

    def begin(self) -> Transaction:
        return Transaction(self, Message("T", b"x"), {})


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK, UNKNOWN])
async def test_a_cancelled_outcome_is_sent_and_stays_final(state: TransactionState) -> None:
    transactions = _Transactions()
    transactions.flowing.clear()

    async def use() -> None:
        async with transactions.begin() as transaction:
            decide = {COMMIT: transaction.commit, ROLLBACK: transaction.rollback}
            await decide.get(state, transaction.leave_open)()

    task = asyncio.create_task(use())
    await until(lambda: transactions.tries)
    task.cancel()
    await asyncio.sleep(0)
    transactions.flowing.set()
    await asyncio.wait([task])
    assert task.cancelled()
    await transactions.stop()
    assert transactions.told == [state]


async def test_a_commit_that_fails_is_not_followed_by_a_rollback() -> None:
    transactions = _Transactions()
    transactions.failures = 1
    with pytest.raises(TimedOut):
        async with transactions.begin() as transaction:
            await transaction.commit()
    await loop_passes()
    assert transactions.tries == 1
    assert (transaction.state, transactions.told) == (None, [])


async def test_after_a_failure_only_the_same_outcome_can_be_repeated() -> None:
    transactions = _Transactions()
    transactions.failures = 1
    async with transactions.begin() as transaction:
        with pytest.raises(TimedOut):
            await transaction.rollback()
        with pytest.raises(UsageError, match="the outcome ROLLBACK is final"):
            await transaction.commit()
        await transaction.rollback()
    assert (transaction.state, transactions.told) == (ROLLBACK, [ROLLBACK])


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
async def test_the_end_of_the_block_repeats_an_unsent_outcome(state: TransactionState) -> None:
    transactions = _Transactions()
    transactions.failures = 1
    async with transactions.begin() as transaction:
        with suppress(TimedOut):
            await (transaction.commit() if state is COMMIT else transaction.rollback())
    assert (transaction.state, transactions.told) == (state, [state])


async def test_the_end_of_the_block_waits_for_an_outcome_in_flight() -> None:
    transactions = _Transactions()
    transactions.flowing.clear()
    async with transactions.begin() as transaction:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(transaction.commit(), 0.01)
        transactions.flowing.set()
    assert (transaction.state, transactions.told, transactions.tries) == (COMMIT, [COMMIT], 1)


async def test_an_open_transaction_can_be_ended_later() -> None:
    transactions = _Transactions()
    async with transactions.begin() as transaction:
        await transaction.leave_open()
    await transaction.commit()
    assert (transaction.state, transactions.told) == (COMMIT, [UNKNOWN, COMMIT])


async def test_a_failed_outcome_of_a_cancelled_caller_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transactions = _Transactions()
    transactions.failures = 1
    transactions.flowing.clear()
    transaction = transactions.begin()
    await transaction.begin()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(transaction.commit(), 0.01)
    transactions.flowing.set()
    await transactions.stop()
    await loop_passes()
    assert "transaction outcome not sent cause=not connected" in caplog.text


async def test_a_transaction_that_has_not_begun_has_no_outcome() -> None:
    transactions = _Transactions()
    transaction = transactions.begin()
    with pytest.raises(UsageError, match="has not begun"):
        await transaction.commit()
    async with transaction:
        await transaction.rollback()
    assert transactions.told == [ROLLBACK]
