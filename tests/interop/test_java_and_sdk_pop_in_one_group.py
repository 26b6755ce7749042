"""Groups of a Java consumer and a consumer of the SDK that both pop: no duplicates, and takeover."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rmq_client import Message, MessageExt, Producer
from rmq_remoting.bodies.assignment import MessageRequestMode
from tests.interop.clusters import Own
from tests.interop.consumers import consumer_of
from tests.interop.foreign import JavaClient
from tests.support.broker_requests import succeeded
from tests.support.outcome import Option, sha256
from tests.support.pop_requests import set_mode
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.raw_client import raw_client
from tests.support.running import RunningProgram
from tests.support.toolchain import JavaProgram
from tests.support.waiting import until

pytestmark = pytest.mark.java

_WAIT_SECONDS = 40.0
_AT_ONCE = 100
# The minimum of the Java client.
_JAVAS_INVISIBLE_MS = 5000


@pytest.fixture(scope="module")
def java(java_program: JavaProgram, own: Own, tmp_path_factory: pytest.TempPathFactory) -> JavaClient:
    """With JSON headers, because POP's request codes do not fit into binary ones."""
    return JavaClient(java_program, own[0].address, tmp_path_factory.mktemp("java-json"))


class _Group:
    """The messages sent to the group and received by its members, by digests of bodies."""

    def __init__(self, address: str, topic: str) -> None:
        self.sent: list[str] = []
        self.ours: Counter[str] = Counter()
        self._address = address
        self._topic = topic

    async def listen(self, messages: list[MessageExt]) -> None:
        self.ours.update(sha256(message.body) for message in messages)

    async def send(self, count: int) -> None:
        async with Producer(self._address, group="p") as producer:
            bodies = [b"%d" % (len(self.sent) + number) for number in range(count)]
            await asyncio.gather(*(producer.send(Message(self._topic, body)) for body in bodies))
            self.sent += map(sha256, bodies)

    def has_all(self, *javas: RunningProgram) -> bool:
        return set(self.sent) <= self.ours.keys() | _got(*javas).keys()


def _got(*javas: RunningProgram) -> Counter[str]:
    return Counter(message["bodySha256"] for java in javas for message in java.named("message"))


async def test_members_share_the_messages_and_take_over(own: Own, java: JavaClient, own_topic: str) -> None:
    namesrv, broker = own
    async with raw_client(broker.port) as client:
        succeeded(await client.ask(set_mode(own_topic, own_topic, MessageRequestMode.POP)))
    group = _Group(namesrv.address, own_topic)
    options: dict[str, Option] = {"topic": own_topic, "group": own_topic, "count": 10_000, "pop": True}
    with java.start("consume", **options) as quick:
        await quick.wait_for("ready")
        async with consumer_of(
            namesrv.address, own_topic, group.listen, group=own_topic, client_rebalance=False
        ):
            async with asyncio.timeout(_WAIT_SECONDS):
                while not (group.ours and _got(quick)):
                    await group.send(_AT_ONCE)
                    await until(lambda: group.has_all(quick), timeout_seconds=_WAIT_SECONDS)
            assert set((group.ours + _got(quick)).values()) == {1}, "each message is delivered once"
            (await quick.stop()).check()

            # A member that is killed with messages in flight.
            options |= {"threads": 1, "slow_ms": 60_000, "pop_invisible_ms": _JAVAS_INVISIBLE_MS}
            with java.start("consume", **options) as slow:
                await slow.wait_for("ready")
                async with asyncio.timeout(_WAIT_SECONDS):
                    while not _got(slow):
                        await group.send(_AT_ONCE)
                slow.kill()
                in_hand = _got(slow).keys()
                await until(lambda: group.has_all(quick), timeout_seconds=_WAIT_SECONDS)
                assert in_hand <= group.ours.keys()
        again = [body for body, times in group.ours.items() if times > 1]
        assert again == [], "no message acknowledged by the SDK was redelivered"
