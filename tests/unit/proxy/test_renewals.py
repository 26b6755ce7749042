"""Renewals: messages of push consumers stay invisible until acknowledged, or until their client is gone."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from rmq_client.errors import TimedOut
from rmq_proxy.clients import ClientRegistry
from rmq_proxy.metadata import Metadata
from rmq_proxy.pops import Pops
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.receipt_handles import ReceiptHandle
from rmq_proxy.renewals import Renewals, retry_delay_ms
from rmq_proxy.settings import ProxySettings
from rmq_remoting.bodies.group import (
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)
from tests.support.waiting import loop_passes

START_MS = 1_700_000_000_000
INVISIBLE_MS = 60_000
HOUR_MS = 3_600_000
GROUP = SubscriptionGroupConfig(group_name="G")


class FakePops:
    """Records changes of invisible times; `failure` is raised, and `is_gone` tells that a message is lost."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.changes: list[int] = []
        self.failure: Exception | None = None
        self.is_gone = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def change_invisible(
        self, group: str, topic: str, handle: ReceiptHandle, invisible_ms: int
    ) -> ReceiptHandle | None:
        await self.gate.wait()
        self.changes.append(invisible_ms)
        if self.failure is not None:
            raise self.failure
        return None if self.is_gone else _handle(self.now_ms, invisible_ms)


class FakeMetadata:
    async def group(self, name: str) -> SubscriptionGroupConfig:
        return GROUP


def _handle(popped_ms: int = START_MS, invisible_ms: int = INVISIBLE_MS) -> ReceiptHandle:
    return ReceiptHandle.parse(f"5 {popped_ms} {invisible_ms} 3 0 broker-a 2 7 4711")


class Bench:
    """One client that holds one message."""

    def __init__(self) -> None:
        self.pops = FakePops()
        self.clients = ClientRegistry(120.0, lambda: self.pops.now_ms / 1000)
        self.renewals = Renewals(
            cast(Pops, self.pops),
            cast(Metadata, FakeMetadata()),
            self.clients,
            ProxySettings(),
            lambda: self.pops.now_ms,
        )
        self.beat()
        self.renewals.hold("c", "G", "T", "01ID", _handle(), 0)

    def beat(self) -> None:
        settings = pb.Settings(client_type=pb.PUSH_CONSUMER)
        settings.subscription.group.name = "G"
        self.clients.report("c", settings)

    async def after(self, seconds: float) -> None:
        """Let time pass, with a heartbeat, and look for due renewals."""
        self.pops.now_ms += int(seconds * 1000)
        self.beat()
        self.renewals.renew_due()
        await loop_passes(8)

    async def taken(self) -> ReceiptHandle:
        return await self.renewals.take("c", "G", "01ID", _handle())


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_a_message_is_renewed_shortly_before_its_end(bench: Bench) -> None:
    await bench.after(49)
    assert bench.pops.changes == []
    await bench.after(1)
    assert bench.pops.changes == [60_000]
    await bench.after(50)
    await bench.after(170)
    assert bench.pops.changes == [60_000, 180_000, 300_000]


async def test_an_acknowledgement_gets_the_newest_handle_and_ends_the_renewal(bench: Bench) -> None:
    await bench.after(50)
    assert (await bench.taken()).receipt.pop_time == START_MS + 50_000
    assert bench.renewals.held_count == 0
    await bench.after(600)
    assert bench.pops.changes == [60_000]


async def test_an_acknowledgement_waits_for_the_renewal_in_flight(bench: Bench) -> None:
    bench.pops.gate.clear()
    await bench.after(50)
    taking = asyncio.ensure_future(bench.taken())
    await bench.after(5)  # the renewal in flight is not started again
    assert not taking.done()
    bench.pops.gate.set()
    assert (await taking).receipt.pop_time == START_MS + 55_000
    assert bench.pops.changes == [60_000]


async def test_a_message_that_nobody_holds_keeps_its_handle(bench: Bench) -> None:
    other = ReceiptHandle.parse("5 1 2 3 0 broker-a 2 8 4712")
    assert await bench.renewals.take("c", "G", "02ID", other) is other


async def test_renewal_is_given_up_after_failures(bench: Bench) -> None:
    bench.pops.failure = TimedOut("late")
    for _ in range(6):
        await bench.after(50)
    assert len(bench.pops.changes) == 4  # the first one and three more
    assert bench.renewals.held_count == 0


async def test_a_message_that_is_no_longer_held_is_forgotten(bench: Bench) -> None:
    bench.pops.is_gone = True
    await bench.after(50)
    assert bench.renewals.held_count == 0


async def test_after_three_hours_the_group_retries(bench: Bench) -> None:
    await bench.after(3 * HOUR_MS / 1000)
    assert bench.pops.changes == [10_000]  # the group's first delay of a redelivery
    assert bench.renewals.held_count == 0


@pytest.mark.parametrize("how", ["leaves", "is silent"])
async def test_messages_of_a_client_that_has_gone_are_visible_soon(bench: Bench, how: str) -> None:
    if how == "leaves":
        bench.clients.leave("c")
    else:
        bench.pops.now_ms += 121_000
        bench.renewals.renew_due()
    await loop_passes(8)
    assert bench.pops.changes == [1000]
    assert bench.renewals.held_count == 0


async def test_a_stop_leaves_receipts_valid_that_the_client_knows(bench: Bench) -> None:
    await bench.renewals.stop()
    assert bench.pops.changes == []


async def test_a_stop_releases_messages_with_a_handle_that_only_the_proxy_knows(bench: Bench) -> None:
    await bench.after(50)
    await bench.renewals.stop()
    assert bench.pops.changes == [60_000, 1000]


def test_delays_of_redeliveries_are_those_of_the_groups_policy() -> None:
    assert [retry_delay_ms(GROUP, delivered) for delivered in (0, 1, 99)] == [10_000, 30_000, 7_200_000]
    policy = GroupRetryPolicy(
        type=GroupRetryPolicyType.EXPONENTIAL,
        exponential_retry_policy=ExponentialRetryPolicy(initial=1000, max=10_000, multiplier=3),
    )
    config = SubscriptionGroupConfig(group_name="G", group_retry_policy=policy)
    assert [retry_delay_ms(config, delivered) for delivered in (0, 1, 2, 3)] == [1000, 3000, 9000, 10_000]
