"""Waiting pops: who is woken by what, how long they wait, and how many may."""

from __future__ import annotations

import asyncio

import pytest

from rmq_broker.delivery.arrivals import Arrivals
from rmq_broker.delivery.waiting_requests import TICK_SECONDS
from rmq_broker.pop.check_point import QueueKey
from rmq_broker.pop.polls import Polls
from rmq_broker.store.api import Arrival, ConsumeQueue
from rmq_broker.store.queues.descriptors import QueueSupport
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Answer, HeldAnswer, Result
from tests.support.waiting import loop_passes
from tests.unit.broker.parts import Peer, broker_settings

_ANSWER = RemotingCommand.request(1)
_ANY = QueueKey("T", "CG", -1)
_FIRST = QueueKey("T", "CG", 0)


def _nobody_waits(queue: ConsumeQueue) -> None:
    pass


class _Polls(Polls):
    def __init__(self, *, newest_first: bool = False, **keys: object) -> None:
        self.seconds = 1000.0
        self.on_arrival: Arrival
        arrivals = Arrivals(self, _nobody_waits)
        super().__init__(broker_settings(**keys), arrivals, lambda: self.seconds, newest_first=newest_first)
        self.looked: list[str] = []
        self.found: set[str] = set()

    def wait(
        self, name: str, key: QueueKey = _ANY, seconds: float = 10, peer: Peer | None = None
    ) -> asyncio.Future[Answer]:
        def retry(time_is_up: bool) -> Result:
            self.looked.append(name)
            return _ANSWER if time_is_up or name in self.found else None

        return self.hold((peer or Peer()).connection, key, seconds, retry)

    async def message(self, topic: str = "T", queue_id: int = 0) -> list[str]:
        """A message comes; who looked."""
        self.looked.clear()
        self.on_arrival(ConsumeQueue("folder", topic, queue_id, 20_000, QueueSupport()))
        await loop_passes()
        return self.looked


async def test_messages_cost_nothing_where_nobody_waits() -> None:
    polls = _Polls()
    assert polls.on_arrival is _nobody_waits
    peers = [Peer(), Peer()]
    for peer in peers:
        polls.wait("a", peer=peer)
    polls.connection_closed(peers[0].connection)
    assert polls.on_arrival is not _nobody_waits
    polls.connection_closed(peers[1].connection)
    assert polls.on_arrival is _nobody_waits


@pytest.mark.parametrize("newest_first", [False, True])
async def test_one_is_woken_for_a_message(newest_first: bool) -> None:
    polls = _Polls(newest_first=newest_first)
    polls.wait("a")
    polls.wait("b")
    assert await polls.message() == ["b" if newest_first else "a"]


async def test_who_waits_for_the_queue_and_for_any() -> None:
    polls = _Polls()
    polls.wait("any")
    polls.wait("first", _FIRST)
    polls.wait("other topic", QueueKey("U", "CG", -1))
    polls.wait("other group", QueueKey("T", "CG2", -1))
    assert sorted(await polls.message()) == ["any", "first", "other group"]
    assert sorted(await polls.message(queue_id=1)) == ["any", "other group"]
    assert sorted(await polls.message("%RETRY%CG_T")) == ["any", "first"]
    assert sorted(await polls.message("%RETRY%CG+T")) == ["any", "first"]
    assert await polls.message("V") == []


async def test_the_time_ends() -> None:
    polls = _Polls()
    promise = polls.wait("a", seconds=1)
    polls.seconds += 0.9
    polls.expire()
    await loop_passes()
    assert not promise.done()
    polls.seconds += 0.1 + 2 * TICK_SECONDS
    polls.expire()
    await loop_passes()
    assert promise.result() is _ANSWER
    assert (polls.count, polls.count_of(_ANY)) == (0, 0)


async def test_who_is_woken_does_not_wait_behind_a_crowd_whose_time_has_ended() -> None:
    polls = _Polls()
    crowd = [polls.wait(f"late {number}", QueueKey("U", "CG", number), seconds=1) for number in range(5000)]
    promise = polls.wait("a")
    polls.found.add("a")
    polls.seconds += 1 + 2 * TICK_SECONDS
    polls.expire()
    await loop_passes()
    assert not all(end.done() for end in crowd)
    await polls.message()
    assert promise.result() is _ANSWER
    assert not all(end.done() for end in crowd)
    await loop_passes(100)
    assert all(end.done() for end in crowd)
    assert polls.count == 0


async def test_a_promise_says_that_the_request_was_held() -> None:
    assert isinstance(_Polls().wait("a"), HeldAnswer)


async def test_nobody_is_left_behind() -> None:
    polls = _Polls()
    peer = Peer()
    gone = polls.wait("gone", peer=peer)
    polls.connection_closed(peer.connection)
    assert gone.result() is None
    waiting = polls.wait("a")
    polls.topics_removed({"T"})
    await loop_passes()
    assert polls.looked == ["a"]
    polls.release_all()
    assert waiting.result() is _ANSWER
    assert polls.count == 0
    assert not polls.has_room(_ANY)


async def test_what_fails_is_answered_as_a_failure() -> None:
    polls = _Polls()

    def retry(time_is_up: bool) -> Result:
        raise ValueError("no")

    promise = polls.hold(Peer().connection, _ANY, 10, retry)
    await polls.message()
    with pytest.raises(ValueError, match="no"):
        promise.result()
    assert polls.count == 0


async def test_a_look_that_waits_for_the_disk() -> None:
    polls = _Polls()
    looks: list[asyncio.Future[Answer]] = []

    def retry(time_is_up: bool) -> Result:
        looks.append(asyncio.get_running_loop().create_future())
        return looks[-1]

    promise = polls.hold(Peer().connection, _ANY, 10, retry)
    await polls.message()
    await polls.message()
    assert len(looks) == 1
    looks[0].set_result(None)
    await loop_passes()
    assert len(looks) == 2, "a message came meanwhile"
    looks[1].set_result(_ANSWER)
    await loop_passes()
    assert promise.result() is _ANSWER


async def test_who_is_held_up_is_looked_at_with_the_next_tick_and_no_more() -> None:
    polls = _Polls()
    promise = polls.wait("a")
    for looks in (["a"], ["a", "a"]):
        polls.look_later(_ANY)
        await loop_passes()
        assert polls.looked == looks[1:]
        polls.expire()
        polls.expire()
        await loop_passes()
        assert polls.looked == looks
    polls.look_later(_ANY)
    polls.found.add("a")
    polls.expire()
    await loop_passes()
    assert promise.result() is _ANSWER


async def test_some_of_those_who_are_held_up_are_looked_at_in_a_tick() -> None:
    polls = _Polls()
    names = [str(number) for number in range(100)]
    for name in names:
        key = QueueKey("T", name, -1)
        polls.wait(name, key)
        polls.look_later(key)
    polls.expire()
    await loop_passes(10)
    assert polls.looked == names[:64]
    polls.expire()
    await loop_passes(10)
    assert polls.looked == names


async def test_acknowledgements_wake_who_is_held_up() -> None:
    polls = _Polls()
    polls.wait("any")
    polls.wait("first", _FIRST)
    for queue in (_FIRST, QueueKey("%RETRY%CG_T", "CG", 0)):
        polls.fewer_in_flight(queue)
        await loop_passes()
        assert polls.looked == []
        polls.look_later(_ANY)
        polls.fewer_in_flight(queue._replace(group="CG2"))
        polls.fewer_in_flight(queue._replace(topic="U"))
        await loop_passes()
        assert polls.looked == []
        polls.fewer_in_flight(queue)
        polls.fewer_in_flight(queue)
        await loop_passes()
        assert polls.looked == ["any"]
        polls.expire()
        await loop_passes()
        assert polls.looked == ["any"]
        polls.looked.clear()


async def test_how_many_may_wait() -> None:
    polls = _Polls(maxPopPollingSize=4, popPollingSize=1, popPollingMapSize=2)
    for name in ("a", "b"):
        assert polls.has_room(_ANY)
        polls.wait(name)
    assert not polls.has_room(_ANY), "those of the same queue"
    polls.wait("c", _FIRST)
    assert not polls.has_room(QueueKey("U", "CG", 0)), "different queues"
    polls.wait("d", _FIRST)
    assert not polls.has_room(_FIRST), "in all"
