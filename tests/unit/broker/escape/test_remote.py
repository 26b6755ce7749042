"""A message counts as stored once another master has stored it, and not before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmq_broker.escape.remote import RemoteEscape
from rmq_broker.escape.routes import EscapeRoutes
from rmq_broker.settings.acting import ActingSettings
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.broker_settings import broker_settings
from tests.support.clock import Clock
from tests.unit.broker.delivery.parts import inner
from tests.unit.broker.escape.parts import NAMESRV, FakeBrokers

_READ_WRITE, _READ = 6, 4


class _Escape(RemoteEscape):
    def __init__(self, brokers: FakeBrokers, clock: Clock, **keys: object) -> None:
        settings: ActingSettings = broker_settings(**{"enableRemoteEscape": "true", **keys})
        routes = EscapeRoutes("C", "broker-a", brokers, [NAMESRV], lambda: clock() / 1000)
        super().__init__(settings, "InnerProducerGroup_broker-a_1", brokers, routes, lambda: True)

    async def put(self, topic: str = "T", queue_id: int = 0) -> str:
        (problem,) = await self.put_all([inner(topic, b"x", queue_id=queue_id)])
        return problem


@pytest.fixture
async def brokers() -> FakeBrokers:
    brokers = FakeBrokers()
    brokers.perms["T"] = {"broker-a": _READ, "broker-b": _READ_WRITE, "broker-c": _READ_WRITE}
    return brokers


@pytest.fixture
def clock() -> Iterator[Clock]:
    yield Clock()


async def test_messages_of_a_queue_go_to_one_queue_in_their_order(brokers: FakeBrokers, clock: Clock) -> None:
    escape = _Escape(brokers, clock)
    messages = [inner("T", b"%d" % number, queue_id=number % 3) for number in range(90)]
    assert await escape.put_all(messages) == [""] * 90
    for queue_id in range(3):
        place = ("broker-b", "broker-c")[queue_id % 2], queue_id
        bodies = [body for name, header, body in brokers.sends if (name, header.target.queue_id) == place]
        assert bodies == [b"%d" % number for number in range(queue_id, 90, 3)]
    assert escape.sent == {"broker-b": 60, "broker-c": 30} and not escape.failures
    assert brokers.asked.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) <= 64  # those that began before the answer


async def test_without_the_setting_nothing_is_sent(brokers: FakeBrokers, clock: Clock) -> None:
    assert "enableRemoteEscape is off" in await _Escape(brokers, clock, enableRemoteEscape="false").put()
    assert not brokers.asked


async def test_a_master_that_is_away_or_refuses_is_passed_over(brokers: FakeBrokers, clock: Clock) -> None:
    escape = _Escape(brokers, clock)
    brokers.away.add("broker-b")
    assert await escape.put() == ""
    brokers.away.clear()
    brokers.answers["broker-b"] = ResponseCode.SYSTEM_BUSY
    assert await escape.put() == ""
    assert [name for name, _, _ in brokers.sends] == ["broker-c", "broker-c"]


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    ],
)
async def test_a_message_that_is_stored_is_not_sent_again(
    brokers: FakeBrokers, clock: Clock, code: ResponseCode
) -> None:
    brokers.answers |= {"broker-b": code, "broker-c": code}
    assert await _Escape(brokers, clock).put() == ""
    assert brokers.asked.count(RequestCode.SEND_MESSAGE_V2) == 1


async def test_every_refusal_is_told_with_its_broker(brokers: FakeBrokers, clock: Clock) -> None:
    escape = _Escape(brokers, clock)
    brokers.answers |= {"broker-b": ResponseCode.NO_PERMISSION, "broker-c": ResponseCode.MESSAGE_ILLEGAL}
    assert await escape.put() == "topic T, broker broker-c answered 13 (MESSAGE_ILLEGAL): as the test says"
    assert escape.failures == 1
    # The route is asked for again before the next attempt.
    brokers.answers.clear()
    assert await escape.put() == ""
    assert brokers.asked.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 2


async def test_no_other_master_has_the_topic(brokers: FakeBrokers, clock: Clock) -> None:
    escape = _Escape(brokers, clock)
    brokers.perms["T"] = {"broker-a": _READ_WRITE, "broker-b": _READ}
    for _ in range(3):
        assert "knows no other master with write permission for topic T" in await escape.put()
    assert brokers.asked == [RequestCode.GET_ROUTEINFO_BY_TOPIC]
    brokers.perms["T"] = {"broker-b": _READ_WRITE}
    clock.pass_seconds(1)
    assert await escape.put() == ""


async def test_a_route_is_asked_for_again_after_half_a_minute(brokers: FakeBrokers, clock: Clock) -> None:
    escape = _Escape(brokers, clock)
    assert await escape.put() == ""
    clock.pass_seconds(29.9)
    assert await escape.put() == ""
    assert brokers.asked.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 1
    clock.pass_seconds(0.1)
    assert await escape.put() == ""
    assert brokers.asked.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 2


async def test_retries_go_to_any_master_of_the_cluster(brokers: FakeBrokers, clock: Clock) -> None:
    assert await _Escape(brokers, clock).put("%RETRY%CG_T") == ""
    ((name, header, _),) = brokers.sends
    assert (name, header.target.topic, header.target.queue_id) == ("broker-b", "%RETRY%CG_T", 0)


async def test_name_servers_that_are_away(brokers: FakeBrokers, clock: Clock) -> None:
    brokers.away.add("namesrv")
    escape = _Escape(brokers, clock)
    assert await escape.put() == f"route of topic T: cannot connect to {NAMESRV}: refused"
    brokers.away.clear()
    clock.pass_seconds(1)
    assert await escape.put() == ""
