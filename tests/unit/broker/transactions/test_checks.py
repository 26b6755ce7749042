"""Transactions that do not end: their producers are checked, and finally they are given up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.store.api import MAX_PROPERTIES_BYTES, ColdData, StoreUnavailable
from rmq_broker.store.log.record import properties_of
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.message_codec import decode_messages
from tests.support.stores import hold_flushes
from tests.unit.broker.delivery.parts import inner
from tests.unit.broker.transactions.parts import (
    COMMIT,
    GIVEN_UP,
    HALF,
    ROLLBACK,
    TOPIC,
    TransactionBroker,
    place_of,
    question,
    without,
)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[TransactionBroker]:
    made = TransactionBroker(tmp_path, transactionCheckMax=2)
    yield made
    made.store.close()


def _cold(physical_offset: int, *, entered: bool) -> bytes:
    raise ColdData


async def test_a_producer_is_checked_after_the_timeout(broker: TransactionBroker) -> None:
    producer = broker.join()
    sent = broker.send(b"one", UNIQ_KEY="U", TAGS="paid")
    await broker.check_after(5.999)
    assert producer.received == []

    await broker.check_after(0.001)

    header, command = question(producer)
    (first, again) = broker.stored(HALF)
    assert (again.properties["TRANSACTION_CHECK_TIMES"], again.body) == ("1", b"one")
    assert without(again, "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET") == first.properties
    assert (header.commit_log_offset, header.tran_state_table_offset) == (again.physical_offset, 1)
    assert (header.msg_id, header.transaction_id, header.topic) == ("U", "U", HALF)
    assert (header.offset_msg_id, header.broker_name) == (again.offset_msg_id, "broker-a")
    (message,) = decode_messages(command.body, check_crc=True)
    assert (message.topic, message.queue_id, message.body) == (TOPIC, 2, b"one")
    assert (message.queue_offset, message.physical_offset) == (1, again.physical_offset)
    assert message.properties == again.properties
    assert sent.queue_offset == 0


async def test_the_answer_ends_the_transaction(broker: TransactionBroker) -> None:
    producer = broker.join()
    broker.send()
    await broker.check_after(6)

    broker.end(COMMIT, place_of(question(producer)[0]), from_transaction_check=True)

    assert broker.bodies(TOPIC, 2) == [b"body"]
    assert len(broker.halves) == 0
    broker.service.ops.write()
    assert broker.ops() == [b"0,1,"]


@pytest.mark.parametrize("first", [True, False])
async def test_a_late_outcome_and_the_answer_to_a_check_count_once(
    broker: TransactionBroker, first: bool
) -> None:
    """In either order. Apache's broker stores the message twice."""
    producer = broker.join()
    sent = broker.send()
    await broker.check_after(6)
    places = [sent, place_of(question(producer)[0])]
    for place in places if first else reversed(places):
        broker.end(COMMIT, place)
    assert broker.bodies(TOPIC, 2) == [b"body"]


async def test_producers_of_a_group_are_checked_in_turn(broker: TransactionBroker) -> None:
    producers = [broker.join() for _ in range(2)]
    another = broker.join("another group")
    broker.send(b"1")
    broker.send(b"2")
    await broker.check_after(6)
    assert [len(producer.received) for producer in producers] == [1, 1]
    assert another.received == []


async def test_a_new_transaction_does_not_delay_the_checks_of_an_older_one(
    broker: TransactionBroker,
) -> None:
    """Each check moves the older one behind it in the queue."""
    producer = broker.join()
    broker.send(b"old")
    broker.clock.pass_seconds(3)
    broker.send(b"new")
    await broker.check_after(3)
    assert len(producer.received) == 1
    await broker.check_after(1)
    assert len(producer.received) == 2


async def test_a_disconnected_producer_is_not_checked(broker: TransactionBroker) -> None:
    gone, left = broker.join(), broker.join()
    gone.connection.abort()
    for _ in range(2):
        broker.send()
    await broker.check_after(6)
    assert len(left.received) == 2


async def test_a_check_without_a_connected_producer(broker: TransactionBroker) -> None:
    broker.send()
    await broker.check_after(6)
    assert (broker.service.check_requests.sent, broker.service.check_requests.unsent) == (0, 1)
    producer = broker.join()
    await broker.check_after(30)
    assert question(producer)[0].tran_state_table_offset == 2


async def test_a_transaction_is_given_up_after_the_last_check(broker: TransactionBroker) -> None:
    producer = broker.join()
    sent = broker.send(b"one")
    for _ in range(4):
        await broker.check_after(30)

    assert len(producer.received) == 2
    (message,) = broker.stored(GIVEN_UP)
    assert (message.body, message.properties["TRANSACTION_CHECK_TIMES"]) == (b"one", "2")
    assert message.properties["REAL_TOPIC"] == TOPIC
    assert (len(broker.halves), broker.halves.counts, broker.service.checks.given_up) == (0, {}, 1)
    # Its producer may know at last.
    broker.end(COMMIT, sent)
    broker.end(COMMIT, sent)
    assert broker.bodies(TOPIC, 2) == [b"one"]


async def test_the_checks_of_a_given_up_transaction_are_resumed(broker: TransactionBroker) -> None:
    producer = broker.join()
    sent = broker.send(b"one")
    for _ in range(3):
        await broker.check_after(30)
    (message,) = broker.stored(GIVEN_UP)
    record = broker.store.record_at(message.physical_offset)

    broker.service.resumption.resume(record, message.offset_msg_id)

    with pytest.raises(CommandError, match="already in progress again"):
        broker.service.resumption.resume(record, message.offset_msg_id)
    await broker.check_after(30)
    assert broker.stored(HALF)[-1].properties["TRANSACTION_CHECK_TIMES"] == "1"
    broker.end(COMMIT, place_of(question(producer)[0]))
    with pytest.raises(CommandError, match="was committed already") as refused:
        broker.service.resumption.resume(record, message.offset_msg_id)
    assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
    broker.end(COMMIT, sent)
    assert broker.bodies(TOPIC, 2) == [b"one"]


async def test_only_given_up_transactions_can_be_resumed(broker: TransactionBroker) -> None:
    half = broker.send()
    for offset in (half.physical_offset, 17):
        with pytest.raises(CommandError, match="is not of a transaction that was given up") as refused:
            broker.service.resumption.resume(broker.store.record_at(offset), "ID")
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert len(broker.halves) == 1


async def test_the_immunity_time_delays_checks(broker: TransactionBroker) -> None:
    producer = broker.join()
    sent = broker.send(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    await broker.check_after(30)
    assert producer.received == []
    # It is appended again all the same: it must not hold up the progress of the others.
    assert broker.stored(HALF)[1].properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    assert "TRANSACTION_CHECK_TIMES" not in broker.stored(HALF)[1].properties

    await broker.check_after(30)
    assert len(producer.received) == 1
    broker.clock.pass_seconds(1)
    with pytest.raises(CommandError, match="CHECK_IMMUNITY_TIME_IN_SECONDS") as refused:
        broker.end(COMMIT, sent)
    assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
    broker.end(ROLLBACK, place_of(question(producer)[0]), from_transaction_check=True)
    assert broker.bodies(TOPIC, 2) == []


async def test_a_transaction_older_than_the_retention_is_given_up(broker: TransactionBroker) -> None:
    producer = broker.join()
    broker.send()
    await broker.check_after(72 * 3600 + 1)
    assert producer.received == []
    assert len(broker.stored(GIVEN_UP)) == 1


async def test_a_full_disk_interrupts_the_checks(
    broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise StoreUnavailable("the disk is full")

    producer = broker.join()
    broker.send()
    with monkeypatch.context() as patch:
        patch.setattr(broker.store, "put", refuse)
        await broker.check_after(6)
    assert (producer.received, len(broker.halves)) == ([], 1)
    await broker.check_after(30)
    assert len(producer.received) == 1


async def test_half_messages_that_are_not_in_memory_are_read_in_a_thread(
    broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = broker.join()
    broker.send()
    monkeypatch.setattr(broker.store, "record_now", _cold)
    await broker.check_after(6)
    assert len(producer.received) == 1


async def test_unflushed_transactions_are_checked_too(broker: TransactionBroker) -> None:
    producer = broker.join()
    hold_flushes(broker.store)
    broker.send()

    await broker.check_after(6)

    assert (len(broker.halves), broker.service.checks.lost) == (1, 0)
    assert question(producer)[0].tran_state_table_offset == 1
    broker.store.appender.confirmed(broker.store.max_phy_offset())
    assert broker.bodies(HALF) == [b"body", b"body"]


async def test_an_unreadable_unflushed_transaction_is_checked_later(
    broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = broker.join()
    hold_flushes(broker.store)
    broker.send()
    monkeypatch.setattr(broker.store, "record_now", _cold)

    await broker.check_after(6)

    assert (len(broker.halves), broker.service.checks.lost, producer.received) == (1, 0, [])
    broker.store.appender.confirmed(broker.store.max_phy_offset())
    await broker.check_after(6)
    assert len(producer.received) == 1


async def test_a_removed_half_message_is_counted(
    broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send()
    monkeypatch.setattr(broker.store, "record_now", lambda offset, *, entered: None)
    await broker.check_after(6)
    assert (len(broker.halves), broker.service.checks.lost) == (0, 1)


async def test_a_message_without_room_for_the_check_count_is_given_up(broker: TransactionBroker) -> None:
    producer = broker.join()
    broker.send(v="x")
    record = broker.store.record_at(broker.halves.in_order()[0].physical_offset)
    assert record is not None
    room = MAX_PROPERTIES_BYTES - len(properties_of(record, 0, len(record))) + 1
    broker.send(v="y" * room)
    await broker.check_after(6)
    assert len(producer.received) == 1
    (message,) = broker.stored(GIVEN_UP)
    assert message.properties["v"] == "y" * room


async def test_a_message_without_a_group_gets_the_requests_group(broker: TransactionBroker) -> None:
    broker.service.preparing.put(inner(TOPIC, UNIQ_KEY="U"), "asked", b"U")
    (half,) = broker.halves.in_order()
    assert (half.group, half.topic, half.checks, half.immune_ms) == ("asked", TOPIC, 0, None)
