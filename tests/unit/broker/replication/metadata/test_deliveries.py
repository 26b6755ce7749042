"""A replica knows what its master has delivered, and continues there as the master."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from struct import pack

import pytest

from rmq_broker.delivery.inner_message import InnerMessage
from rmq_broker.replication.metadata.deliveries import DelayPart, TimerCountPart, TimerPart
from rmq_broker.replication.metadata.log_barrier import LogBarrier
from rmq_broker.replication.metadata.master import Master, MetadataError
from rmq_broker.replication.metadata.part import Part
from rmq_broker.timers.checkpoint import TimerCheckpoint
from rmq_broker.topics.names import TIMER_TOPIC
from rmq_remoting.codes import RequestCode
from rmq_remoting.errors import BodyError
from tests.support.clock import START_MS, Clock
from tests.support.fake_master import ADDRESS, FakeMaster
from tests.unit.broker.delivery.parts import DeliveryBroker
from tests.unit.broker.timers.parts import with_properties

_DELAYS = b'{"dataVersion":{"counter":4,"stateVersion":0,"timestamp":77},"offsetTable":{1:5,3:17}}'


class _Replica:
    """A replica and its master's answers, which are applied once `flushed` has reached the master's end."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self.broker = DeliveryBroker(folder, clock, brokerRole="SLAVE", brokerId=1)
        self.flushed = 0
        self.barrier = LogBarrier(lambda: self.flushed)
        self.client = FakeMaster()
        self.timer_part = TimerPart(self.broker.timers, self.barrier)

    async def sync(self, part: Part) -> None:
        await part.sync(Master(self.client, ADDRESS))
        self.barrier.master_ends_at(self.client.log_end)
        for _, apply in self.barrier.take_reached():
            await apply()

    async def timers_are(self, checkpoint: TimerCheckpoint) -> None:
        self.client.answers[RequestCode.GET_TIMER_CHECK_POINT] = checkpoint.encode()
        await self.sync(self.timer_part)

    @property
    def delivered(self) -> tuple[int, int]:
        known = self.broker.timers.pending.checkpoint
        return known.delivered_ms, known.delivered_offset


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[_Replica]:
    made = _Replica(tmp_path)
    yield made
    made.broker.close()


# --- delay levels ---


async def test_offsets_of_delay_levels_are_taken_over_with_the_log(replica: _Replica) -> None:
    replica.client.answers[RequestCode.GET_ALL_DELAY_OFFSET] = _DELAYS
    part = DelayPart(replica.broker.services.delivery, replica.barrier)
    replica.client.log_end, replica.flushed = 100, 99
    await replica.sync(part)
    assert replica.broker.delay_offsets.current() == {}
    replica.flushed = 100
    await replica.sync(part)
    assert replica.broker.delay_offsets.current() == {1: 5, 3: 17}
    assert replica.broker.delay_offsets.encode() == _DELAYS
    await replica.broker.services.delivery.close(all_is_flushed=True)
    assert (replica.broker.settings.config_dir / "delayOffset.json").read_bytes() == _DELAYS
    # An answer that is known already needs no end of the master's log.
    await part.sync(Master(replica.client, ADDRESS))
    assert not replica.barrier.needs_end


@pytest.mark.parametrize("answer", [b"{}", b"[]", b'{"offsetTable":{1:"x"}}'])
async def test_unusable_offsets_of_delay_levels_change_nothing(replica: _Replica, answer: bytes) -> None:
    part = DelayPart(replica.broker.services.delivery, replica.barrier)
    replica.client.answers[RequestCode.GET_ALL_DELAY_OFFSET] = _DELAYS
    await replica.sync(part)
    replica.client.answers[RequestCode.GET_ALL_DELAY_OFFSET] = answer
    with pytest.raises((MetadataError, BodyError)):
        await replica.sync(part)
    assert replica.broker.delay_offsets.encode() == _DELAYS


# --- the timer's checkpoint ---


def _at(read_ms: int, queue_offset: int) -> TimerCheckpoint:
    return TimerCheckpoint(read_ms=read_ms, queue_offset=queue_offset, precision_ms=1000)


async def test_a_checkpoint_counts_once_a_later_one_confirms_it(replica: _Replica) -> None:
    await replica.timers_are(_at(10_000, 5))
    await replica.timers_are(_at(12_000, 8))  # an overdue message may be in the slot of 11 s, or of 12 s
    assert replica.delivered == (0, 0)
    await replica.timers_are(_at(13_000, 9))
    assert replica.delivered == (10_000, 5)
    await replica.timers_are(_at(16_000, 9))
    assert replica.delivered == (13_000, 9)


async def test_a_clock_set_back_delays_the_confirmation(replica: _Replica) -> None:
    """Messages that were entered as overdue before are in slots that end later by the new clock."""
    for read_ms in (50_000, 20_000, 30_000, 51_000):
        await replica.timers_are(_at(read_ms, read_ms // 1000))
    assert replica.delivered == (0, 0)
    await replica.timers_are(_at(53_000, 53))
    assert replica.delivered == (50_000, 50)


async def test_a_checkpoint_waits_for_the_log(replica: _Replica) -> None:
    replica.client.log_end, replica.flushed = 100, 99
    for read_ms in (10_000, 20_000, 30_000):
        await replica.timers_are(_at(read_ms, 1))
    assert replica.delivered == (0, 0)
    replica.flushed = 100
    await replica.timers_are(_at(40_000, 1))
    assert replica.delivered == (30_000, 1)


async def test_apaches_seven_values_are_taken_over_and_persisted(replica: _Replica) -> None:
    for read_ms in (START_MS, START_MS + 3000):
        values = pack(">qqqqqqq", read_ms, 520, 17, 17, 0, 1, 4)
        replica.client.answers[RequestCode.GET_TIMER_CHECK_POINT] = values
        await replica.sync(replica.timer_part)
    assert replica.delivered == (START_MS, 17)
    saved = TimerCheckpoint.load(replica.broker.settings.config_dir / "timercheck")
    assert saved == replica.broker.timers.pending.checkpoint
    # This replica's queue is entered from its beginning. POP's check points up to this time were moved to
    # the revive topic.
    assert (saved.read_ms, saved.queue_offset, saved.handed_over_ms) == (START_MS, 0, START_MS)


@pytest.mark.parametrize("answer", [b"\0" * 20, pack(">qqqq", -1, 0, 0, 0)])
async def test_an_unusable_checkpoint_changes_nothing(replica: _Replica, answer: bytes) -> None:
    replica.client.answers[RequestCode.GET_TIMER_CHECK_POINT] = answer
    with pytest.raises(MetadataError, match="timer checkpoint cannot be used"):
        await replica.sync(replica.timer_part)
    assert replica.delivered == (0, 0)


# --- numbers of waiting messages ---


async def test_numbers_of_waiting_messages_are_taken_over(replica: _Replica) -> None:
    part = TimerCountPart(replica.broker.timers)
    content = (
        b'{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":9},'
        b'"timingCount":{"T":{"count":3,"timeStamp":8}}}'
    )
    replica.client.answers[RequestCode.GET_TIMER_METRICS] = content
    await replica.sync(part)
    assert replica.broker.timers.counts.waiting == {"T": 3}
    replica.client.answers[RequestCode.GET_TIMER_METRICS] = b"{}"
    with pytest.raises(MetadataError, match="timingCount"):
        await replica.sync(part)
    await replica.broker.timers.counts_file.close()
    assert (replica.broker.settings.config_dir / "timermetrics").read_bytes() == content


# --- as the master ---


def _timed(deliver_ms: int, body: bytes) -> InnerMessage:
    return with_properties({"TIMER_DELIVER_MS": str(deliver_ms), "UNIQ_KEY": body.decode()}, body=body)


async def test_as_the_master_it_delivers_what_its_master_has_not(tmp_path: Path) -> None:
    """The queue holds messages that the master delivered, has entered, or has not entered yet."""
    broker = DeliveryBroker(tmp_path)
    start_ms = broker.clock()
    due = {b"delivered": 2000, b"waits": 60_000, b"overdue, not entered": 2500, b"later": 90_000}
    for body, delay_ms in due.items():
        broker.writer.put(_timed(start_ms + delay_ms, body))
    assert broker.store.max_offset(TIMER_TOPIC, 0) == 4
    await broker.store.stop()

    replica = _Replica(tmp_path, broker.clock)
    await replica.timers_are(_at(start_ms + 10_000, 2))  # "delivered" and "waits" are entered
    await replica.timers_are(_at(start_ms + 20_000, 4))
    assert replica.delivered == (start_ms + 10_000, 2)
    await replica.broker.store.stop()

    broker.clock.pass_seconds(30)
    master = DeliveryBroker(tmp_path, broker.clock)
    await master.pass_seconds(1)
    assert master.bodies() == [b"overdue, not entered"]
    # A kill while entered messages wait does not take the knowledge away.
    master.store.commit_log.flush()
    await master.timers.flush()
    master.close()
    again = DeliveryBroker(tmp_path, broker.clock)
    await again.pass_seconds(100)
    assert again.bodies() == [b"overdue, not entered", b"waits", b"later"]
    again.close()


async def test_entries_of_a_former_master_are_dropped(tmp_path: Path) -> None:
    """The log of a former master may have been truncated, so its timer log may point to other messages."""
    broker = DeliveryBroker(tmp_path)
    start_ms = broker.clock()
    for number in range(3):
        broker.writer.put(_timed(start_ms + 60_000, b"%d" % number))
    await broker.pass_seconds(1)
    assert broker.timers.pending.count == 3
    broker.store.commit_log.flush()
    await broker.timers.flush()
    await broker.store.stop()

    replica = _Replica(tmp_path, broker.clock)
    pending = replica.broker.timers.pending
    assert pending.count == 3
    await replica.timers_are(_at(start_ms + 1000, 3))
    await replica.timers_are(_at(start_ms + 5000, 3))
    assert (pending.count, pending.has_changed) == (0, False)
    await replica.broker.timers.flush()
    await replica.broker.store.stop()

    master = DeliveryBroker(tmp_path, broker.clock)
    assert master.timers.pending.count == 0
    await master.pass_seconds(70)
    assert sorted(master.bodies()) == [b"0", b"1", b"2"]
    master.close()
