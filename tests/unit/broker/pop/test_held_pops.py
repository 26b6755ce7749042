"""Waiting pops: what wakes them, how long they wait, and how many may."""

from __future__ import annotations

import asyncio

import pytest

from rmq_broker.delivery.arrivals import Arrivals
from rmq_broker.delivery.waiting_requests import STILL_WAITING, TICK_SECONDS, Look, LookResult
from rmq_broker.pop.check_point import QueueKey
from rmq_broker.pop.held_pops import HeldPops
from rmq_broker.store.api import ArrivalListener, ConsumeQueue
from rmq_broker.store.queues.queue_resources import QueueResources
from rmq_remoting.answers import Answer, HeldAnswer
from rmq_remoting.command import RemotingCommand
from tests.support.broker_settings import broker_settings
from tests.support.peers import Peer
from tests.support.waiting import loop_passes

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


class _HeldPops(HeldPops):
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
    held = _HeldPops()
    assert held.source.listeners == [_always]
    peers = [Peer(), Peer()]
    for peer in peers:
        held.wait("a", peer=peer)
    held.connection_closed(peers[0].connection)
    assert len(held.source.listeners) == 2
    held.connection_closed(peers[1].connection)
    assert held.source.listeners == [_always]


@pytest.mark.parametrize("newest_first", [False, True])
async def test_a_message_wakes_one_pop(newest_first: bool) -> None:
    held = _HeldPops(newest_first=newest_first)
    held.wait("a")
    held.wait("b")
    assert await held.message() == ["b" if newest_first else "a"]


async def test_a_message_wakes_pops_of_its_queue_and_of_any_queue() -> None:
    held = _HeldPops()
    held.wait("any")
    held.wait("first", _FIRST)
    held.wait("other topic", QueueKey("U", "CG", -1))
    held.wait("other group", QueueKey("T", "CG2", -1))
    assert sorted(await held.message()) == ["any", "first", "other group"]
    assert sorted(await held.message(queue_id=1)) == ["any", "other group"]
    assert sorted(await held.message("%RETRY%CG_T")) == ["any", "first"]
    assert sorted(await held.message("%RETRY%CG+T")) == ["any", "first"]
    assert await held.message("V") == []


async def test_a_pop_is_answered_when_its_time_ends() -> None:
    held = _HeldPops()
    promise = held.wait("a", seconds=1)
    held.seconds += 0.9
    held.expire()
    await loop_passes()
    assert not promise.done()
    held.seconds += 0.1 + 2 * TICK_SECONDS
    held.expire()
    await loop_passes()
    assert promise.result() is _ANSWER
    assert (held.count, held.count_of(_ANY)) == (0, 0)


async def test_a_woken_pop_does_not_wait_behind_thousands_of_expired_ones() -> None:
    held = _HeldPops()
    crowd = [held.wait(f"late {number}", QueueKey("U", "CG", number), seconds=1) for number in range(5000)]
    promise = held.wait("a")
    held.found.add("a")
    held.seconds += 1 + 2 * TICK_SECONDS
    held.expire()
    await loop_passes()
    assert not all(end.done() for end in crowd)
    await held.message()
    assert promise.result() is _ANSWER
    assert not all(end.done() for end in crowd)
    await loop_passes(100)
    assert all(end.done() for end in crowd)
    assert held.count == 0


async def test_the_future_is_that_of_a_held_request() -> None:
    assert isinstance(_HeldPops().wait("a"), HeldAnswer)


async def test_disconnects_deleted_topics_and_release_leave_nothing() -> None:
    held = _HeldPops()
    peer = Peer()
    gone = held.wait("gone", peer=peer)
    held.connection_closed(peer.connection)
    assert gone.result() is None
    waiting = held.wait("a")
    held.topics_removed({"T"})
    await loop_passes()
    assert held.looked == ["a"]
    held.release_all()
    assert waiting.result() is _ANSWER
    assert held.count == 0
    assert not held.has_room(peer.connection, _ANSWER, _ANY)


async def test_a_failed_look_fails_the_pop() -> None:
    held = _HeldPops()

    def look_again(time_is_up: bool) -> Look:
        raise ValueError("no")

    promise = held.hold(Peer().connection, _ANY, 10, look_again)
    await held.message()
    with pytest.raises(ValueError, match="no"):
        promise.result()
    assert held.count == 0


async def test_a_message_that_arrives_while_a_look_waits_for_the_disk() -> None:
    held = _HeldPops()
    looks: list[asyncio.Future[LookResult]] = []

    def look_again(time_is_up: bool) -> Look:
        looks.append(asyncio.get_running_loop().create_future())
        return looks[-1]

    promise = held.hold(Peer().connection, _ANY, 10, look_again)
    await held.message()
    await held.message()
    assert len(looks) == 1
    looks[0].set_result(STILL_WAITING)
    await loop_passes()
    assert len(looks) == 2, "a message came meanwhile"
    looks[1].set_result(_ANSWER)
    await loop_passes()
    assert promise.result() is _ANSWER


async def test_a_blocked_pop_looks_once_with_the_next_tick() -> None:
    held = _HeldPops()
    promise = held.wait("a")
    for looks in (["a"], ["a", "a"]):
        held.retry_next_tick(_ANY)
        await loop_passes()
        assert held.looked == looks[1:]
        held.expire()
        held.expire()
        await loop_passes()
        assert held.looked == looks
    held.retry_next_tick(_ANY)
    held.found.add("a")
    held.expire()
    await loop_passes()
    assert promise.result() is _ANSWER


async def test_the_blocked_pops_that_look_in_a_tick_are_bounded() -> None:
    held = _HeldPops()
    names = [str(number) for number in range(100)]
    for name in names:
        key = QueueKey("T", name, -1)
        held.wait(name, key)
        held.retry_next_tick(key)
    held.expire()
    await loop_passes(10)
    assert held.looked == names[:64]
    held.expire()
    await loop_passes(10)
    assert held.looked == names


async def test_acknowledgements_wake_blocked_pops() -> None:
    held = _HeldPops()
    held.wait("any")
    held.wait("first", _FIRST)
    for queue in (_FIRST, QueueKey("%RETRY%CG_T", "CG", 0)):
        held.fewer_in_flight(queue)
        await loop_passes()
        assert held.looked == []
        held.retry_next_tick(_ANY)
        held.fewer_in_flight(queue._replace(group="CG2"))
        held.fewer_in_flight(queue._replace(topic="U"))
        await loop_passes()
        assert held.looked == []
        held.fewer_in_flight(queue)
        held.fewer_in_flight(queue)
        await loop_passes()
        assert held.looked == ["any"]
        held.expire()
        await loop_passes()
        assert held.looked == ["any"]
        held.looked.clear()


async def test_waiting_pops_are_bounded() -> None:
    held, connection = (
        _HeldPops(maxPopPollingSize=4, popPollingSize=1, popPollingMapSize=2),
        Peer().connection,
    )
    for name in ("a", "b"):
        assert held.has_room(connection, _ANSWER, _ANY)
        held.wait(name)
    assert not held.has_room(connection, _ANSWER, _ANY), "those of the same queue"
    held.wait("c", _FIRST)
    assert not held.has_room(connection, _ANSWER, QueueKey("U", "CG", 0)), "different queues"
    held.wait("d", _FIRST)
    assert not held.has_room(connection, _ANSWER, _FIRST), "in all"
    assert held.refused == 1, "by the bound of all of them"


async def test_one_connection_cannot_have_all_places_of_waiting_pops() -> None:
    held, greedy, modest = _HeldPops(maxPopPollingSize=400, popPollingSize=400), Peer(), Peer()
    while held.has_room(greedy.connection, _ANSWER, _ANY):
        held.wait("greedy", peer=greedy)
    assert held.count == 200, "half of all places"
    while held.has_room(modest.connection, _ANSWER, _ANY):
        held.wait("modest", peer=modest)
    assert held.count == 264
    held.connection_closed(greedy.connection)
    assert held.has_room(modest.connection, _ANSWER, _ANY)
    held.connection_closed(modest.connection)
    assert held.count == 0 and held.size_bytes == 0
