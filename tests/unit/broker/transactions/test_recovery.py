"""Recovery of transactions after a restart, a kill, and from a directory of Apache's broker."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.delivery.inner_message import read_message
from rmq_broker.offsets.table import NO_OFFSET
from rmq_broker.store.log.commit_log import CommitLog
from rmq_remoting.errors import CommandError
from tests.support.golden_store import SETTINGS, unpack
from tests.unit.broker.delivery.parts import inner
from tests.unit.broker.transactions.parts import (
    COMMIT,
    GROUP,
    HALF,
    OP,
    ROLLBACK,
    SYSTEM_GROUP,
    TOPIC,
    TransactionBroker,
    place_of,
    question,
)

_LAYOUT = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue")


def _positions(broker: TransactionBroker) -> tuple[int, int]:
    query = broker.offsets.query
    return query(SYSTEM_GROUP, HALF, 0), query(SYSTEM_GROUP, OP, 0)


def _leave_gap(broker: TransactionBroker, topic: str, length: int) -> None:
    """Skip the next offsets of a queue, which have no messages then."""
    queue = broker.store.queues.get(topic, 0)
    assert queue is not None
    queue.fill_gap(queue.max_offset + length)


async def test_transactions_in_progress_are_found(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path)
    places = [broker.send(b"%d" % number) for number in range(4)]
    broker.end(COMMIT, places[1])
    broker.end(ROLLBACK, places[3])
    broker.service.ops.write()

    after = await broker.restarted()

    assert [half.queue_offset for half in after.halves.in_order()] == [0, 2]
    assert after.halves.counts == {TOPIC: 2}
    after.end(COMMIT, places[0])
    after.end(ROLLBACK, places[2])
    assert after.bodies(TOPIC, 2) == [b"1", b"0"]
    after.store.close()


async def test_the_number_of_checks_is_kept(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path)
    sent = broker.send(b"one")
    for _ in range(3):
        await broker.check_after(30)
    broker.service.ops.write()

    after = await broker.restarted()

    (half,) = after.halves.in_order()
    assert (half.first_offset, half.queue_offset, half.checks) == (0, 3, 3)
    producer = after.join()
    await after.check_after(30)
    assert after.stored(HALF)[-1].properties["TRANSACTION_CHECK_TIMES"] == "4"
    after.end(COMMIT, place_of(question(producer)[0]))
    after.end(COMMIT, sent)
    assert after.bodies(TOPIC, 2) == [b"one"]
    after.store.close()


async def test_the_age_of_a_transaction_does_not_depend_on_the_producers_clock(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path)
    message = inner(TOPIC, PGROUP=GROUP, UNIQ_KEY="U")
    message.born_timestamp_ms = 1
    broker.service.preparing.put(message, GROUP, b"U")
    began_ms = broker.clock.now_ms
    await broker.check_after(30)
    broker.service.ops.write()

    after = await broker.restarted()

    assert [half.since_ms for half in after.halves.in_order()] == [began_ms]
    after.store.close()


async def test_a_crash_between_a_copy_and_its_op_message(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path)
    broker.send(b"one")
    await broker.check_after(30)  # no op message says yet that the first record is done with

    after = await broker.restarted()

    (half,) = after.halves.in_order()
    assert (half.first_offset, half.queue_offset) == (0, 1)
    after.service.ops.write()
    assert after.ops() == [b"0,"]
    after.store.close()


async def test_offsets_are_committed_when_the_log_is_flushed(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path)
    progress = broker.service.progress
    places = [broker.send(b"%d" % number) for number in range(3)]
    broker.end(COMMIT, places[0])
    broker.service.ops.write()
    progress.look()
    progress.look()
    assert _positions(broker) == (NO_OFFSET, NO_OFFSET)

    broker.store.commit_log.flush()
    progress.look()
    assert _positions(broker) == (1, 1)

    broker.end(COMMIT, places[2])
    broker.service.ops.write()
    broker.store.commit_log.flush()
    progress.look()
    progress.look()
    assert _positions(broker) == (1, 1)  # the second is under way
    broker.end(COMMIT, places[1])
    broker.service.ops.write()
    broker.store.commit_log.flush()
    progress.look()
    progress.look()
    assert _positions(broker) == (3, 3)

    after = await broker.restarted()
    assert len(after.halves) == 0
    assert after.service.progress.begins() == (3, 3)
    after.store.close()


async def test_messages_before_the_committed_offsets_are_not_read(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path)
    places = [broker.send() for _ in range(2)]
    broker.end(ROLLBACK, places[0])
    await broker.service.stop()
    await broker.store.stop()
    assert broker.service.finish(all_is_flushed=broker.store.all_is_flushed)
    assert _positions(broker) == (1, 1)
    assert not broker.service.finish(all_is_flushed=True)
    after = await broker.restarted()
    assert [half.queue_offset for half in after.halves.in_order()] == [1]
    after.store.close()


async def test_a_stop_with_a_failing_disk_commits_no_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may take the committed message, and then its producer has to be checked."""

    def fail(commit_log: CommitLog) -> int:
        raise OSError(errno.EIO, "Input/output error")

    broker = TransactionBroker(tmp_path)
    place = broker.send()
    broker.store.flush_log()
    broker.end(COMMIT, place)
    monkeypatch.setattr(CommitLog, "flush", fail)
    with pytest.raises(OSError, match="Input/output error"):
        broker.store.flush_log()

    await broker.service.stop()
    assert _positions(broker) == (NO_OFFSET, NO_OFFSET)
    await broker.store.stop()
    assert not broker.service.finish(all_is_flushed=broker.store.all_is_flushed)
    assert _positions(broker) == (NO_OFFSET, NO_OFFSET)


@pytest.mark.parametrize("gap", [1, 999, 1000, 2500])
async def test_offsets_behind_missing_entries_are_right(gap: int, tmp_path: Path) -> None:
    """As after damage to either queue."""
    broker = TransactionBroker(tmp_path)
    broker.send(b"before")
    _leave_gap(broker, HALF, gap)
    places = [broker.send(b"%d" % number) for number in range(3)]
    broker.end(ROLLBACK, places[0])
    broker.service.ops.write()
    _leave_gap(broker, OP, gap)
    broker.end(ROLLBACK, places[2])
    broker.service.ops.write()
    assert broker.store.max_offset(OP, 0) == gap + 2

    broker.replace_service()
    await broker.service.load()

    assert [half.queue_offset for half in broker.halves.in_order()] == [0, gap + 2]
    broker.end(COMMIT, places[1])
    assert broker.bodies(TOPIC, 2) == [b"1"]
    broker.store.close()


async def test_a_stop_writes_the_counts_for_apaches_broker(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path)
    (tmp_path / "config").mkdir()
    broker.send()
    await broker.service.stop()
    content = (tmp_path / "config" / "transactionMetrics").read_text()
    assert '"transactionCount":{"T":{"count":1,"timeStamp":' in content
    assert content.startswith('{"dataVersion":{"counter":1,')
    broker.store.close()


async def test_offsets_beyond_the_end_of_the_queue_are_corrected(tmp_path: Path) -> None:
    """As after a power cut that took the end of the log."""
    broker = TransactionBroker(tmp_path)
    broker.send()
    broker.offsets.commit(SYSTEM_GROUP, HALF, 0, 100)
    broker.offsets.commit(SYSTEM_GROUP, OP, 0, 100)
    assert broker.service.progress.begins() == (1, 0)
    broker.store.close()


async def test_invalid_messages_in_both_queues_are_skipped(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path)
    for topic, body in ((OP, b"x,,-1,99999999999999999999,0"), (OP, b"?"), (HALF, b"no half message")):
        broker.writer.put(inner(topic, body))
    place = broker.send()

    after = await broker.restarted()

    assert [half.queue_offset for half in after.halves.in_order()] == [place.queue_offset]
    after.store.close()


async def test_copies_made_by_apaches_broker_are_one_transaction(tmp_path: Path) -> None:
    """As after a kill: the copies do not name their first record, and the committed offsets are old."""
    broker = TransactionBroker(tmp_path)
    still_open, ended = broker.send(b"open"), broker.send(b"ended")
    for body, checks in ((b"open", 1), (b"ended", 1), (b"open", 2)):
        copy = inner(HALF, body)
        fields = {"UNIQ_KEY": body.decode(), "__transactionId__": body.decode(), "PGROUP": GROUP}
        copy.set_properties(
            {**fields, "REAL_TOPIC": TOPIC, "REAL_QID": "2", "TRANSACTION_CHECK_TIMES": str(checks)}
        )
        broker.writer.put(copy)
    broker.writer.put(inner(OP, b"3,", TAGS="d"))

    after = await broker.restarted()

    (half,) = after.halves.in_order()
    assert (half.first_offset, half.queue_offset, half.checks) == (still_open.queue_offset, 4, 2)
    after.end(COMMIT, still_open)
    assert after.bodies(TOPIC, 2) == [b"open"]
    with pytest.raises(CommandError, match="has ended already"):
        after.end(COMMIT, ended)
    after.store.close()


@pytest.mark.parametrize(("name", "count"), [("clean", 1), ("killed", 0)])
async def test_transactions_of_apaches_broker_are_taken_over(name: str, count: int, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    layout: dict[str, Any] = {key: SETTINGS[key] for key in _LAYOUT}
    broker = TransactionBroker(folder, **layout)
    broker.offsets.decode((folder / "config" / "consumerOffset.json").read_bytes())
    await broker.service.load()

    for half in broker.halves.in_order():
        record = broker.store.record_at(half.physical_offset)
        assert record is not None
        properties = read_message(record).message.properties
        assert b"TX_UNKNOWN" in properties
        assert half.checks > 0
    assert len(broker.halves) == count
    broker.store.close()
