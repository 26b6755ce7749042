"""Messages in transactions: invisible until they are committed, and stored once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.delivery.message_writer import Written
from rmq_broker.store.api import StoreUnavailable
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from tests.support.golden_store import manifest
from tests.unit.broker.delivery.parts import inner
from tests.unit.broker.transactions.parts import (
    COMMIT,
    GIVEN_UP,
    GROUP,
    HALF,
    ROLLBACK,
    TOPIC,
    TransactionBroker,
)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[TransactionBroker]:
    made = TransactionBroker(tmp_path)
    yield made
    made.store.close()


async def test_a_half_message_is_stored_as_by_apache(broker: TransactionBroker) -> None:
    broker.send(b"one", TAGS="paid", KEYS="k", UNIQ_KEY="U")

    (half,) = broker.stored(HALF)
    assert half.properties == {
        "PGROUP": GROUP,
        "TRAN_MSG": "true",
        "TAGS": "paid",
        "KEYS": "k",
        "UNIQ_KEY": "U",
        "__transactionId__": "U",
        "REAL_TOPIC": TOPIC,
        "REAL_QID": "2",
    }
    assert (half.sys_flag, half.flag, half.body) == (0, 7, b"one")
    assert broker.stored(TOPIC, 2) == []
    assert broker.halves.counts == {TOPIC: 1}


async def test_a_committed_message_is_stored_as_by_apache(broker: TransactionBroker) -> None:
    place = broker.send(b"one", TAGS="paid", UNIQ_KEY="U")

    broker.end(COMMIT, place, transaction_id="U")

    (half,), (message,) = broker.stored(HALF), broker.stored(TOPIC, 2)
    assert message.properties == half.properties
    assert (message.sys_flag, message.prepared_transaction_offset) == (8, place.physical_offset)
    assert (message.body, message.flag, message.queue_offset) == (b"one", 7, 0)
    assert (message.born_timestamp, message.born_host) == (half.born_timestamp, half.born_host)
    assert len(broker.halves) == 0
    assert broker.service.ending.committed == {TOPIC: 1}
    assert sum(broker.service.ending.latency_seconds[TOPIC].counts) == 1


async def test_the_golden_store_agrees() -> None:
    """Apache's broker wrote the form that the two tests before assert."""
    rows = {row["phyOffset"]: row for row in manifest("clean")}
    committed = [row for row in rows.values() if row["sysFlag"] == 8]
    assert committed
    for row in committed:
        half = rows[row["preparedTransactionOffset"]]
        assert (half["topic"], half["sysFlag"]) == (HALF, 0)
        assert row["properties"] == half["properties"]
        assert (row["topic"], str(row["queueId"])) == (
            half["properties"]["REAL_TOPIC"],
            half["properties"]["REAL_QID"],
        )


async def test_a_rolled_back_message_is_not_stored(broker: TransactionBroker) -> None:
    place = broker.send()
    broker.end(ROLLBACK, place)
    assert broker.stored(TOPIC, 2) == []
    assert (len(broker.halves), broker.service.ending.rolled_back) == (0, {TOPIC: 1})


async def test_ended_transactions_share_an_op_message(broker: TransactionBroker) -> None:
    places = [broker.send(b"%d" % number) for number in range(3)]
    broker.end(COMMIT, places[2])
    broker.end(ROLLBACK, places[0])
    assert broker.ops() == []

    broker.service.ops.write()

    assert broker.ops() == [b"2,0,"]
    (op,) = broker.stored("RMQ_SYS_TRANS_OP_HALF_TOPIC")
    assert op.properties == {"TAGS": "d"}


async def test_a_full_op_message_is_written_at_once(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path, transactionOpMsgMaxSize=10)
    for number in range(12):
        broker.end(COMMIT, broker.send(b"%d" % number))
    assert broker.ops()[0] == b"0,1,2,3,4,"
    broker.service.ops.write()
    assert b"".join(broker.ops()) == b"0,1,2,3,4,5,6,7,8,9,10,11,"
    broker.store.close()


async def test_a_failed_op_message_is_retried(
    broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.end(ROLLBACK, broker.send())
    with monkeypatch.context() as patch:
        patch.setattr(broker.store, "put", _unavailable)
        broker.service.ops.write()
    assert broker.ops() == []
    broker.service.ops.write()
    assert broker.ops() == [b"0,"]


def _unavailable(*arguments: object, **named: object) -> None:
    raise StoreUnavailable("the disk is full")


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"producer_group": "another"}, "was not sent by producer group"),
        ({"tran_state_table_offset": 5}, "does not have the queue offset 5"),
        ({"transaction_id": "another"}, "does not belong to transaction"),
        ({"commit_log_offset": 3}, "no half message begins at offset 3"),
        ({"commit_log_offset": -1}, "no half message begins at offset -1"),
        ({"commit_log_offset": 1 << 60}, "no half message begins at offset"),
    ],
)
@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
async def test_forged_and_foreign_outcomes_are_refused(
    broker: TransactionBroker, state: int, fields: dict[str, object], remark: str
) -> None:
    place = broker.send(UNIQ_KEY="U")
    with pytest.raises(CommandError, match=remark) as refused:
        broker.end(state, place, **fields)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert (broker.stored(TOPIC, 2), len(broker.halves)) == ([], 1)


async def test_an_ordinary_message_cannot_be_committed(broker: TransactionBroker) -> None:
    placed = broker.writer.put(inner(TOPIC, PGROUP=GROUP, REAL_TOPIC=TOPIC, REAL_QID="0"))
    with pytest.raises(CommandError, match="no half message begins"):
        broker.end(COMMIT, placed)


async def test_the_outcome_of_a_transaction_is_final(broker: TransactionBroker) -> None:
    place = broker.send()
    broker.end(COMMIT, place)
    broker.end(COMMIT, place)  # the answer to the first was lost
    with pytest.raises(CommandError, match="was committed already, it cannot be rolled back") as refused:
        broker.end(ROLLBACK, place)
    assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
    assert len(broker.stored(TOPIC, 2)) == 1

    place = broker.send()
    broker.end(ROLLBACK, place)
    with pytest.raises(CommandError, match="was rolled back already"):
        broker.end(COMMIT, place)
    assert len(broker.stored(TOPIC, 2)) == 1


async def test_a_full_disk_leaves_the_transaction_open(
    broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = broker.send()
    with monkeypatch.context() as patch:
        patch.setattr(broker.store, "put", _unavailable)
        with pytest.raises(StoreUnavailable):
            broker.end(COMMIT, place)
    broker.end(COMMIT, place)
    assert len(broker.stored(TOPIC, 2)) == 1


async def test_a_deleted_topic_gets_no_committed_message(broker: TransactionBroker) -> None:
    place = broker.send()
    broker.topics.delete([TOPIC])
    with pytest.raises(CommandError, match="does not exist any more") as refused:
        broker.end(COMMIT, place)
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    broker.end(ROLLBACK, place)
    assert len(broker.halves) == 0


async def test_properties_set_by_the_broker_are_not_accepted_from_producers(
    broker: TransactionBroker,
) -> None:
    broker.send(TRAN_PREPARED_QUEUE_OFFSET="77", TRANSACTION_CHECK_TIMES="14", REAL_TOPIC="Another")
    (half,) = broker.stored(HALF)
    assert half.properties["REAL_TOPIC"] == TOPIC
    assert not {"TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"} & set(half.properties)
    assert broker.halves.get(0) is not None


async def test_transactions_can_be_forbidden_and_are_limited(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path, transactionPendingMax=1)
    place = broker.send()
    with pytest.raises(CommandError, match="1 transactions have not ended yet") as refused:
        broker.send()
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    broker.end(ROLLBACK, place)
    broker.send()

    broker.settings.reject_transaction_message = True
    with pytest.raises(CommandError, match="rejectTransactionMessage") as refused:
        broker.send()
    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert broker.stored(GIVEN_UP) == []
    broker.store.close()


async def test_a_half_message_in_memory_equals_that_of_the_log(broker: TransactionBroker) -> None:
    first, second = (broker.send(b"one", TAGS="paid", UNIQ_KEY="U") for _ in range(2))
    halves = [broker.halves.get(place.queue_offset) for place in (first, second)]
    assert all(half is not None and half.message is not None for half in halves)
    assert halves[1] is not None
    halves[1].message = None  # so it has to be read

    broker.end(COMMIT, first)
    broker.end(COMMIT, second)

    at_hand, read = broker.stored(TOPIC, 2)
    assert (at_hand.body, at_hand.properties, at_hand.sys_flag, at_hand.flag, at_hand.born_host) == (
        (read.body, read.properties, read.sys_flag, read.flag, read.born_host)
    )
    assert at_hand.prepared_transaction_offset == first.physical_offset


async def test_only_the_newest_small_half_messages_are_kept_in_memory(broker: TransactionBroker) -> None:
    large, *small = [broker.send(bytes(5000)), *(broker.send() for _ in range(1001))]
    assert [place for place in (large, *small) if _is_in_memory(broker, place)] == small[1:]


def _is_in_memory(broker: TransactionBroker, place: Written) -> bool:
    half = broker.halves.get(place.queue_offset)
    assert half is not None
    return half.message is not None
