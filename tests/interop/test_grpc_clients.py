"""Apache's clients for 5.x in Java, Node.js and Rust: the same scenarios with our gRPC ports and Apache's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmq_client.admin import Admin
from rmq_remoting.bodies.group import (
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)
from rmq_remoting.codes import RequestCode
from tests.interop.grpc_fronts import STACKS, GrpcStack
from tests.support import toolchain
from tests.support.broker_requests import request, succeeded
from tests.support.jvm import java_command
from tests.support.outcome import Event, outcome_of
from tests.support.processes import run_command
from tests.support.raw_client import raw_client
from tests.support.requirements import built_or_skip

SCENARIO_SECONDS = 100.0

# Returns the command of a program, which goes on with the arguments. Its files are below the folder.
Command = Callable[[Path], list[str]]


def _java() -> Command:
    program = built_or_skip(toolchain.java5_client)
    return lambda home: java_command(program, "interop5.Main", [], home=home)


def _node() -> Command:
    program = built_or_skip(toolchain.node5_client)
    return lambda home: [str(program.node), str(program.script)]


def _rust() -> Command:
    program = built_or_skip(toolchain.rust5_client)
    return lambda home: [str(program)]


@dataclass(frozen=True, slots=True)
class Scenarios:
    """Runs scenarios of one program on one stack, each with a topic and a group of its own."""

    command: Command
    stack: GrpcStack
    home: Path
    name: str

    async def run(self, scenario: str, message_type: str, *, fifo: bool = False) -> list[Event]:
        """Return the events of a scenario."""
        async with Admin(self.stack.namesrv_address) as admin:
            await admin.create_topic(self.name, queues=2, attributes={"+message.type": message_type})
        # The Node.js client knows no other policy.
        policy = GroupRetryPolicy(
            type=GroupRetryPolicyType.EXPONENTIAL,
            exponential_retry_policy=ExponentialRetryPolicy(initial=1000, max=1000, multiplier=1),
        )
        group = SubscriptionGroupConfig(
            group_name=self.name, consume_message_orderly=fifo, group_retry_policy=policy
        )
        async with raw_client(self.stack.broker_port) as client:
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            succeeded(await client.ask(request(code, group.encode())))
        command = [*self.command(self.home), self.stack.address, scenario, self.name, self.name]
        environment = {**os.environ, "HOME": str(self.home)}
        finished = await run_command(command, timeout_s=SCENARIO_SECONDS, environment=environment)
        return list(outcome_of(finished).check().events)


@pytest.fixture(scope="module", params=STACKS)
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcStack]:
    with request.param(tmp_path_factory.mktemp("stack")) as running:
        yield running


PROGRAMS: Mapping[str, tuple[Callable[[], Command], list[pytest.MarkDecorator]]] = {
    "java": (_java, [pytest.mark.java]),
    "node": (_node, [pytest.mark.node]),
    "rust": (_rust, [pytest.mark.rust, pytest.mark.long]),  # its build takes minutes
}


@pytest.fixture(params=[pytest.param(name, marks=marks) for name, (_, marks) in PROGRAMS.items()])
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def scenarios(program: str, stack: GrpcStack, tmp_path: Path, name: str) -> Scenarios:
    build, _ = PROGRAMS[program]
    return Scenarios(build(), stack, tmp_path, name)


def _of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["event"] == kind]


@pytest.mark.smoke("java", "local")
async def test_a_simple_consumer_receives_what_was_sent(scenarios: Scenarios) -> None:
    events = await scenarios.run("normal", "NORMAL")
    received = _of(events, "received")
    attempts = [(event["body"], event["attempt"]) for event in received]
    assert sorted(attempts[:2]) == [("a", 1), ("b", 1)]  # of two queues
    assert attempts[2:] == [("b", 2)]
    assert {event["id"] for event in received} == {event["id"] for event in _of(events, "sent")}
    first = min(received, key=lambda event: str(event["body"]))
    assert (first["tag"], first["keys"], first["colour"]) == ("Ta", "key-a", "red")


async def test_a_push_consumer_keeps_the_order_of_message_groups(scenarios: Scenarios) -> None:
    delivered = _of(await scenarios.run("fifo", "FIFO", fifo=True), "delivered")
    accepted = [event["body"] for event in delivered if event["accepted"]]
    for group in ("g0", "g1", "g2"):
        assert [body for body in accepted if body.startswith(group)] == [f"{group}:{n}" for n in range(3)]


async def test_refused_messages_are_redelivered_to_a_push_consumer(
    scenarios: Scenarios, program: str
) -> None:
    if program == "rust":
        pytest.skip("release 5.0.0 of the Rust client has no push consumer")
    delivered = _of(await scenarios.run("retry", "NORMAL"), "delivered")
    attempts = sorted((event["body"], event["attempt"], event["accepted"]) for event in delivered)
    assert attempts == [(body, attempt, attempt == 2) for body in "abc" for attempt in (1, 2)]


async def test_delayed_messages_arrive_when_due_and_recalled_ones_never(scenarios: Scenarios) -> None:
    events = await scenarios.run("delay", "DELAY")
    (due,), (received,) = _of(events, "due"), _of(events, "received")
    assert received["body"] == "kept"
    assert received["at_ms"] >= due["at_ms"]


async def test_transactions_are_committed_rolled_back_and_checked(scenarios: Scenarios) -> None:
    events = await scenarios.run("transaction", "TRANSACTION")
    assert {event["body"] for event in _of(events, "received")} == {"open", "committed"}
    assert "open" in {event["body"] for event in _of(events, "checked")}
