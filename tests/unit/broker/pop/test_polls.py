"""Waiting pops: what wakes them, how long they wait, and how many may."""

from __future__ import annotations

import asyncio

import pytest

from rmq_broker.delivery.arrivals import Arrivals
from rmq_broker.delivery.waiting_requests import STILL_WAITING, TICK_SECONDS, Look, LookResult
from rmq_broker.pop.check_point import QueueKey
from rmq_broker.pop.polls import Polls
from rmq_broker.store.api import ArrivalListener, ConsumeQueue
from rmq_broker.store.queues.queue_resources import QueueResources
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Answer, HeldAnswer
from tests.support.waiting import loop_passes
from tests.unit.broker.parts import Peer, broker_settings

_ANSWER = RemotingCommand.request(1)
_ANY = QueueKey("T", "CG", -1)
_FIRST = QueueKey("T", "CG", 0)


def _always(queue: ConsumeQueue) -> None:
    pass


class _Source:
    """Tells listeners of messages, as a store does."""

    def __init__(self) -> None:
        self.listeners: list[ArrivalListener] = []

    def add_arrival_listener(self, listener: ArrivalListener) -> None:
        self.listeners.append(listener)

    def remove_arrival_listener(self, listener: ArrivalListener) -> None:
        self.listeners.remove(listener)

    def arrived(self, queue: ConsumeQueue) -> None:
        for listener in self.listeners.copy():
            listener(queue)


class _Polls(Polls):
    def __init__(self, *, newest_first: bool = False, **keys: object) -> None:
        self.seconds = 1000.0
        self.source = _Source()
        arrivals = Arrivals(self.source, _always)
        super().__init__(broker_settings(**keys), arrivals, lambda: self.seconds, newest_first=newest_first)
        self.looked: list[str] = []
        self.found: set[str] = set()

    def wait(
        self, name: str, key: QueueKey = _ANY, seconds: float = 10, peer: Peer | None = None
    ) -> asyncio.Future[Answer]:
        def look_again(time_is_up: bool) -> Look:
            self.looked.append(name)
            return _ANSWER if time_is_up or name in self.found else STILL_WAITING

        return self.hold((peer or Peer()).connection, key, seconds, look_again)

    async def message(self, topic: str = "T", queue_id: int = 0) -> list[str]:
        """Let a message arrive; return the names of the pops that looked."""
        self.looked.clear()
        self.source.arrived(ConsumeQueue("folder", topic, queue_id, 20_000, QueueResources()))
        await loop_passes()
        return self.looked


async def test_arrivals_are_listened_to_only_while_a_pop_waits() -> None:
    polls = _Polls()
    assert polls.source.listeners == [_always]
    peers = [Peer(), Peer()]
    for peer in peers:
        polls.wait("a", peer=peer)
    polls.connection_closed(peers[0].connection)
    assert len(polls.source.listeners) == 2
    polls.connection_closed(peers[1].connection)
    assert polls.source.listeners == [_always]


@pytest.mark.parametrize("newest_first", [False, True])
async def test_a_message_wakes_one_pop(newest_first: bool) -> None:
    polls = _Polls(newest_first=newest_first)
    polls.wait("a")
    polls.wait("b")
    assert await polls.message() == ["b" if newest_first else "a"]


async def test_a_message_wakes_pops_of_its_queue_and_of_any_queue() -> None:
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


async def test_a_pop_is_answered_when_its_time_ends() -> None:
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


async def test_a_woken_pop_does_not_wait_behind_thousands_of_expired_ones() -> None:
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


async def test_the_future_is_that_of_a_held_request() -> None:
    assert isinstance(_Polls().wait("a"), HeldAnswer)


async def test_disconnects_deleted_topics_and_release_leave_nothing() -> None:
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


async def test_a_failed_look_fails_the_pop() -> None:
    polls = _Polls()

    def look_again(time_is_up: bool) -> Look:
        raise ValueError("no")

    promise = polls.hold(Peer().connection, _ANY, 10, look_again)
    await polls.message()
    with pytest.raises(ValueError, match="no"):
        promise.result()
    assert polls.count == 0


async def test_a_message_that_arrives_while_a_look_waits_for_the_disk() -> None:
    polls = _Polls()
    looks: list[asyncio.Future[LookResult]] = []

    def look_again(time_is_up: bool) -> Look:
        looks.append(asyncio.get_running_loop().create_future())
        return looks[-1]

    promise = polls.hold(Peer().connection, _ANY, 10, look_again)
    await polls.message()
    await polls.message()
    assert len(looks) == 1
    looks[0].set_result(STILL_WAITING)
    await loop_passes()
    assert len(looks) == 2, "a message came meanwhile"
    looks[1].set_result(_ANSWER)
    await loop_passes()
    assert promise.result() is _ANSWER


async def test_a_blocked_pop_looks_once_with_the_next_tick() -> None:
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


async def test_the_blocked_pops_that_look_in_a_tick_are_bounded() -> None:
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


async def test_acknowledgements_wake_blocked_pops() -> None:
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


async def test_waiting_pops_are_bounded() -> None:
    polls = _Polls(maxPopPollingSize=4, popPollingSize=1, popPollingMapSize=2)
    for name in ("a", "b"):
        assert polls.has_room(_ANY)
        polls.wait(name)
    assert not polls.has_room(_ANY), "those of the same queue"
    polls.wait("c", _FIRST)
    assert not polls.has_room(QueueKey("U", "CG", 0)), "different queues"
    polls.wait("d", _FIRST)
    assert not polls.has_room(_FIRST), "in all"
