"""The SDK's transactions with a broker of ours in this process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmq_client import (
    BatchPolicy,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    TransactionNotBegun,
    TransactionState,
    UsageError,
    blocking,
)
from rmq_client.producer.transactions import Transactions
from rmq_client.results import SendStatus
from tests.support.clusters import ClusterBroker, running_cluster
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until


@dataclass
class _Cluster:
    address: str
    broker: ClusterBroker

    @property
    def open(self) -> int:
        """Return how many transactions are open."""
        assert self.broker.services.transactions is not None
        return len(self.broker.services.transactions.halves)

    async def bodies(self, count: int) -> list[bytes]:
        """Return the bodies that consumers have got, once there are that many."""
        async with PullConsumer(self.address, group="g", consume_from="first") as reader:
            await reader.assign(await reader.queues("T"))
            found: list[bytes] = []
            async with asyncio.timeout(20):
                while len(found) < count:
                    found += [message.body for message in await reader.poll()]
        return found


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[_Cluster]:
    keys = {"transactionTimeOut": 1, "transactionCheckInterval": 20, "transactionCheckMax": 1000}
    async with running_cluster(tmp_path, {"broker-a": {"T": 1}}, **keys) as running:
        yield _Cluster(running.address, running.broker)


async def test_the_end_of_the_block_commits(cluster: _Cluster) -> None:
    async with Producer(cluster.address, group="p") as producer:
        message = Message("T", b"yes", tags="a")
        async with producer.transaction(message) as transaction:
            assert cluster.open == 1
            assert transaction.sent.msg_id == transaction.msg_id
        assert transaction.state is TransactionState.COMMIT
        assert message.unique_key is None, "the message can be sent again, as another one"
        assert await cluster.bodies(1) == [b"yes"]
    await until(lambda: cluster.open == 0)


@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError()])
async def test_an_exception_rolls_back(cluster: _Cluster, error: BaseException) -> None:
    async with Producer(cluster.address, group="p") as producer:
        with pytest.raises(type(error)):
            async with producer.transaction(Message("T", b"no")) as transaction:
                raise error
        assert transaction.state is TransactionState.ROLLBACK
        await until(lambda: cluster.open == 0)
        async with producer.transaction(Message("T", b"yes")):
            pass
        assert await cluster.bodies(1) == [b"yes"]


async def test_a_block_can_end_its_transaction_early(cluster: _Cluster) -> None:
    async with Producer(cluster.address, group="p") as producer:
        async with producer.transaction(Message("T", b"1")) as transaction:
            await transaction.commit()
            with pytest.raises(UsageError, match="has ended already: COMMIT"):
                await transaction.rollback()
        async with producer.transaction(Message("T", b"2")) as transaction:
            await transaction.rollback("not wanted")
        assert await cluster.bodies(1) == [b"1"]


async def test_open_transactions_are_checked(cluster: _Cluster) -> None:
    states = iter([TransactionState.UNKNOWN, "nonsense", RuntimeError("later"), TransactionState.COMMIT])
    asked: list[MessageExt] = []

    async def check(message: MessageExt) -> TransactionState:
        asked.append(message)
        state = next(states)
        if isinstance(state, RuntimeError):
            raise state
        return state  # type: ignore[return-value]

    async with Producer(cluster.address, group="p", check_transaction=check) as producer:
        # The first message may overtake the heartbeat; a check counts without a producer, too.
        await producer.send(Message("T", b"first"))
        await until(lambda: bool(cluster.broker.services.clients.producers.find_group("p")))
        async with producer.transaction(Message("T", b"yes")) as transaction:
            await transaction.leave_open()
        await until(lambda: len(asked) == 4)
        assert await cluster.bodies(2) == [b"first", b"yes"]
        assert {message.msg_id for message in asked} == {transaction.msg_id}
        assert [message.properties["TRANSACTION_CHECK_TIMES"] for message in asked] == ["1", "2", "3", "4"]


async def test_another_producer_of_the_group_answers_a_check(cluster: _Cluster) -> None:
    async with (
        Producer(cluster.address, group="p") as first,
        first.transaction(Message("T", b"yes")) as transaction,
    ):
        await transaction.leave_open()
    async with Producer(
        cluster.address, group="p", check_transaction=lambda message: TransactionState.COMMIT
    ) as second:
        await second.queues("T")
        await second.send(Message("T", b"now the broker knows it"))
        assert set(await cluster.bodies(2)) == {b"yes", b"now the broker knows it"}


async def test_the_result_of_work_ends_the_transaction(cluster: _Cluster) -> None:
    done: list[str | None] = []

    def work(message: Message) -> TransactionState:
        done.append(message.unique_key)
        return TransactionState.COMMIT if message.body == b"yes" else TransactionState.ROLLBACK

    async def fails(message: Message) -> TransactionState:
        raise RuntimeError("it does")

    async with Producer(cluster.address, group="p", batching=BatchPolicy()) as producer:
        no = await producer.send_in_transaction(Message("T", b"no"), work)
        yes = await producer.send_in_transaction(Message("T", b"yes"), work)
        assert (no.state, yes.state) == (TransactionState.ROLLBACK, TransactionState.COMMIT)
        assert done == [no.sent.msg_id, yes.sent.msg_id]
        assert await cluster.bodies(1) == [b"yes"]
        await until(lambda: cluster.open == 0)
        with pytest.raises(RuntimeError, match="it does"):
            await producer.send_in_transaction(Message("T", b"open"), fails)
        assert cluster.open == 1


async def test_a_message_without_send_ok_is_rolled_back(
    cluster: _Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Producer(cluster.address, group="p") as producer:
        transaction = producer.transaction(Message("T", b"no"))
        send_half = Transactions.send_half

        async def unsafe(transactions: Transactions, message: Message, **where: object) -> object:
            sent = await send_half(transactions, message, **where)
            sent.status = SendStatus.FLUSH_DISK_TIMEOUT
            return sent

        monkeypatch.setattr(Transactions, "send_half", unsafe)
        with pytest.raises(TransactionNotBegun, match="FLUSH_DISK_TIMEOUT"):
            async with transaction:
                pytest.fail("the block must not begin")
        await until(lambda: cluster.open == 0)


async def test_invalid_calls_raise(cluster: _Cluster) -> None:
    async with Producer(cluster.address, group="p") as producer:
        with pytest.raises(UsageError, match="cannot be delayed: property DELAY is '3'"):
            producer.transaction(Message("T", b"x", delay_level=3))
        transaction = producer.transaction(Message("T", b"x"))
        with pytest.raises(UsageError, match="has not begun"):
            await transaction.commit()
        async with transaction:
            pass
        with pytest.raises(UsageError, match="begins once"):
            await transaction.begin()


async def test_the_blocking_class(cluster: _Cluster) -> None:
    def use() -> str:
        with blocking.Producer(cluster.address, group="p") as producer:
            with pytest.raises(ValueError, match="no"), producer.transaction(Message("T", b"no")):
                raise ValueError("no")
            with producer.transaction(Message("T", b"yes")) as transaction:
                assert transaction.message.body == b"yes"
            result = producer.send_in_transaction(
                Message("T", b"too"), lambda message: TransactionState.COMMIT
            )
            assert result.state is TransactionState.COMMIT
            return transaction.sent.msg_id

    await asyncio.to_thread(use)
    assert await cluster.bodies(2) == [b"yes", b"too"]


async def test_work_in_every_thread_can_send_compressed_bodies(cluster: _Cluster) -> None:
    """As many transactions as the loop has threads; the work of each waits for the send of a large
    message.
    """
    count = min(32, (os.cpu_count() or 1) + 4)
    together = threading.Barrier(count, timeout=10)

    def transact(producer: blocking.Producer) -> TransactionState:
        def work(message: Message) -> TransactionState:
            together.wait()
            producer.send(Message("T", b"large" * 20_000))
            return TransactionState.ROLLBACK

        return producer.send_in_transaction(Message("T", b"small"), work).state

    def use() -> list[TransactionState]:
        with (
            blocking.Producer(cluster.address, group="p") as producer,
            ThreadPoolExecutor(count) as executor,
        ):
            return list(executor.map(transact, [producer] * count))

    assert await asyncio.to_thread(use) == [TransactionState.ROLLBACK] * count
    assert await cluster.bodies(count) == [b"large" * 20_000] * count
