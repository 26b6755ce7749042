"""A master that starts takes over what its replicas have delivered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmq_broker.acting.hand_back import HandBack, Progress
from rmq_broker.groups.names import TRANSACTION_GROUP
from rmq_broker.offsets.saved import SavedOffsets
from rmq_broker.pop.closed_pops import ClosedPops
from rmq_broker.timers.checkpoint import TimerCheckpoint
from rmq_remoting.bodies.offsets import DelayOffsetSerializeWrapper
from rmq_remoting.codes import RequestCode
from tests.support.clock import START_MS
from tests.support.fake_master import FakeMaster
from tests.unit.broker.acting.parts import GroupBroker
from tests.unit.broker.delivery.parts import inner
from tests.unit.broker.pop.parts import GROUP
from tests.unit.broker.transactions.parts import HALF

_OWN, _REPLICA, _HA = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.1:10912"
_MEMBERS = {0: _OWN, 1: _REPLICA}
_JOURNAL_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"


@dataclass
class _Master:
    broker: GroupBroker
    replica: FakeMaster
    hand_back: HandBack
    pauses: list[float]

    def answers(
        self,
        delays: dict[int, int] | None = None,
        offsets: dict[str, dict[int, int]] | None = None,
        checkpoint: TimerCheckpoint | None = None,
    ) -> None:
        """Let the replica answer with its progress."""
        self.replica.answers = {
            RequestCode.EXCHANGE_BROKER_HA_INFO: b"",
            RequestCode.GET_ALL_DELAY_OFFSET: DelayOffsetSerializeWrapper(offset_table=delays or {}).encode(),
            RequestCode.GET_ALL_CONSUMER_OFFSET: SavedOffsets(offset_table=offsets or {}).encode(),
            RequestCode.GET_TIMER_CHECK_POINT: (checkpoint or TimerCheckpoint()).encode(),
        }


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[_Master]:
    broker = GroupBroker(tmp_path)
    await broker.pops.load()
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    progress = Progress(
        broker.topics,
        broker.groups,
        broker.offsets,
        broker.services.delivery,
        broker.timers,
        broker.pops,
        broker.store,
    )
    replica = FakeMaster()
    master = _Master(broker, replica, HandBack(progress, replica, _OWN, _HA, sleep), pauses)
    master.answers()
    yield master
    broker.close()


async def test_delayed_messages_continue_behind_those_of_the_replica(master: _Master) -> None:
    for number in range(10):
        master.broker.writer.put(inner(body=b"%d" % number), 1)
    master.broker.delay_offsets.advance(2, 7)
    master.answers(delays={1: 6, 2: 5})
    await master.hand_back.take(_MEMBERS)
    assert master.replica.asked[0] == RequestCode.EXCHANGE_BROKER_HA_INFO
    assert master.broker.delay_offsets.current() == {1: 6, 2: 7}
    await master.broker.pass_seconds(2)
    assert master.broker.bodies() == [b"6", b"7", b"8", b"9"]


async def test_higher_offsets_count_within_their_queues(master: _Master) -> None:
    broker = master.broker
    broker.put(10)
    broker.send(b"half")
    broker.offsets.put(GROUP, "T", 1, 8)
    master.answers(
        offsets={
            f"T@{GROUP}": {0: 20, 1: 5},
            f"unknown@{GROUP}": {0: 1},
            f"{HALF}@{TRANSACTION_GROUP}": {0: 1},
            f"rmq_sys_wheel_timer@{_JOURNAL_GROUP}": {0: 9},
        }
    )
    await master.hand_back.take(_MEMBERS)
    assert broker.offsets.offsets_of(GROUP, "T") == {0: 10, 1: 8}
    assert broker.offsets.query(TRANSACTION_GROUP, HALF, 0) == 1
    assert "unknown" not in broker.offsets.topics_of(GROUP)
    # The journal of POP is the master's own: a replica redelivers without closing its entries.
    assert broker.offsets.query(_JOURNAL_GROUP, "rmq_sys_wheel_timer", 0) != 9
    broker.service.forget()
    await broker.service.load()
    assert not len(broker.halves)


async def test_popped_messages_that_the_replica_has_closed_are_not_redelivered(master: _Master) -> None:
    broker = master.broker
    broker.put(3)
    broker.pop(invisible_ms=5000)
    (point,) = broker.pops.in_flight
    replica = ClosedPops()
    replica.follow([point])
    replica.note(point, (0, 2))
    master.replica.answers[RequestCode.EXCHANGE_BROKER_HA_INFO] = replica.encode()
    broker.pops.forget()
    await master.hand_back.take(_MEMBERS)
    for _ in range(2):  # the second time, as after a crash, the journal tells
        await broker.pops.load()
        (point,) = broker.pops.in_flight
        assert point.open_offsets() == [1]
        broker.pops.forget()


async def test_timed_messages_that_the_replica_has_delivered_are_left_out(master: _Master) -> None:
    broker = master.broker
    for number in range(6):
        due_ms = START_MS + 1000 * (number + 2)
        broker.writer.put(inner(body=b"%d" % number, TIMER_DELIVER_MS=str(due_ms)))
    await broker.pass_seconds(1)  # they are entered
    broker.clock.pass_seconds(60)
    checkpoint = TimerCheckpoint(read_ms=START_MS + 5000, queue_offset=5)
    master.answers(checkpoint=checkpoint)
    await master.hand_back.take(_MEMBERS)
    await broker.pass_seconds(1)
    assert broker.bodies() == [b"4", b"5"]


async def test_a_replica_that_has_not_acted_tells_what_it_knows_of_its_master(master: _Master) -> None:
    broker = master.broker
    for number in range(3):
        broker.writer.put(inner(body=b"%d" % number, TIMER_DELIVER_MS=str(START_MS + 1000 * (number + 2))))
    broker.clock.pass_seconds(60)
    known = TimerCheckpoint(
        read_ms=START_MS + 9000, delivered_ms=START_MS + 3000, delivered_offset=2, precision_ms=1000
    )
    master.answers(checkpoint=known)
    await master.hand_back.take(_MEMBERS)
    await broker.pass_seconds(1)
    assert broker.bodies() == [b"2"]


async def test_a_replica_that_does_not_answer_is_given_up(
    master: _Master, caplog: pytest.LogCaptureFixture
) -> None:
    master.replica.is_away = True
    await master.hand_back.take({**_MEMBERS, 2: "10.0.0.3:10911"})
    assert len(master.pauses) == 4 and not master.replica.asked
    given_up = [each.message for each in caplog.records if "may be delivered again" in each.message]
    assert len(given_up) == 2


async def test_parts_that_can_be_read_count_although_another_cannot(master: _Master) -> None:
    master.broker.writer.put(inner(), 1)
    master.answers(delays={1: 1})
    master.replica.answers[RequestCode.GET_TIMER_CHECK_POINT] = b"short"
    await master.hand_back.take(_MEMBERS)
    assert master.broker.delay_offsets.get(1) == 1


async def test_a_master_alone_asks_nobody(master: _Master) -> None:
    for members in ({}, {0: _OWN}, {3: _OWN}):
        await master.hand_back.take(members)
    assert not master.replica.asked
