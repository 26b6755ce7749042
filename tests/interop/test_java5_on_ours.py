"""Apache's Java client for 5.x with our proxy, and with our broker itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_client.admin import Admin
from rmq_remoting.bodies.group import CustomizedRetryPolicy, GroupRetryPolicy, SubscriptionGroupConfig
from rmq_remoting.codes import RequestCode
from tests.interop.clusters import Own
from tests.interop.grpc_fronts import broker_itself, cluster_with_grpc, own_proxy
from tests.support import toolchain
from tests.support.broker_requests import request, succeeded
from tests.support.jvm import java_command
from tests.support.outcome import Event, outcome_of
from tests.support.processes import run_command
from tests.support.raw_client import raw_client
from tests.support.requirements import built_or_skip
from tests.support.toolchain import JavaProgram

pytestmark = pytest.mark.java

SCENARIO_SECONDS = 100.0
RETRY_DELAY_MS = 1000


@pytest.fixture(scope="module")
def program() -> JavaProgram:
    return built_or_skip(toolchain.java5_client)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    with cluster_with_grpc(tmp_path_factory.mktemp("local")) as cluster:
        yield cluster


@pytest.fixture(
    scope="module", params=[pytest.param(own_proxy, id="cluster"), pytest.param(broker_itself, id="local")]
)
def address(request: pytest.FixtureRequest, servers: Own) -> Iterator[str]:
    with request.param(servers) as address:
        yield address


class Scenarios:
    """Runs scenarios of `interop5.Main`, each with a topic and a group of its own."""

    def __init__(self, program: JavaProgram, servers: Own, home: Path, name: str) -> None:
        self._program = program
        self._servers = servers
        self._home = home
        self.name = name

    async def run(self, address: str, scenario: str, message_type: str, *, fifo: bool = False) -> list[Event]:
        """Return the events of a scenario."""
        async with Admin(self._servers[0].address) as admin:
            await admin.create_topic(self.name, queues=2, attributes={"+message.type": message_type})
        policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=[RETRY_DELAY_MS]))
        group = SubscriptionGroupConfig(
            group_name=self.name, consume_message_orderly=fifo, group_retry_policy=policy
        )
        async with raw_client(self._servers[1].port) as client:
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            succeeded(await client.ask(request(code, group.encode())))
        arguments = [address, scenario, self.name, self.name]
        command = java_command(self._program, "interop5.Main", arguments, home=self._home)
        finished = await run_command(command, timeout_s=SCENARIO_SECONDS)
        return list(outcome_of(finished).check().events)


@pytest.fixture
def scenarios(program: JavaProgram, servers: Own, tmp_path: Path, name: str) -> Scenarios:
    return Scenarios(program, servers, tmp_path, name)


def _of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["event"] == kind]


async def test_a_simple_consumer_receives_what_was_sent(scenarios: Scenarios, address: str) -> None:
    events = await scenarios.run(address, "normal", "NORMAL")
    received = _of(events, "received")
    attempts = [(event["body"], event["attempt"]) for event in received]
    assert sorted(attempts[:2]) == [("a", 1), ("b", 1)]  # of two queues
    assert attempts[2:] == [("b", 2)]
    assert {event["id"] for event in received} == {event["id"] for event in _of(events, "sent")}
    first = min(received, key=lambda event: str(event["body"]))
    assert (first["tag"], first["keys"], first["colour"]) == ("Ta", "key-a", "red")


async def test_a_push_consumer_keeps_the_order_of_message_groups(scenarios: Scenarios, address: str) -> None:
    delivered = _of(await scenarios.run(address, "fifo", "FIFO", fifo=True), "delivered")
    accepted = [event["body"] for event in delivered if event["accepted"]]
    for group in ("g0", "g1", "g2"):
        assert [body for body in accepted if body.startswith(group)] == [f"{group}:{n}" for n in range(3)]


async def test_refused_messages_are_redelivered_to_a_push_consumer(
    scenarios: Scenarios, address: str
) -> None:
    delivered = _of(await scenarios.run(address, "retry", "NORMAL"), "delivered")
    attempts = sorted((event["body"], event["attempt"], event["accepted"]) for event in delivered)
    assert attempts == [(body, attempt, attempt == 2) for body in "abc" for attempt in (1, 2)]


async def test_delayed_messages_arrive_when_due_and_recalled_ones_never(
    scenarios: Scenarios, address: str
) -> None:
    events = await scenarios.run(address, "delay", "DELAY")
    (due,), (received,) = _of(events, "due"), _of(events, "received")
    assert received["body"] == "kept"
    assert received["at_ms"] >= due["at_ms"]


async def test_transactions_are_committed_rolled_back_and_checked(scenarios: Scenarios, address: str) -> None:
    events = await scenarios.run(address, "transaction", "TRANSACTION")
    assert {event["body"] for event in _of(events, "received")} == {"open", "committed"}
    assert "open" in {event["body"] for event in _of(events, "checked")}
