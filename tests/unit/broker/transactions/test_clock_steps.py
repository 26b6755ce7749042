"""Steps of the wall clock do not change the age of transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.broker.transactions.parts import (
    COMMIT,
    GIVEN_UP,
    HALF,
    TOPIC,
    TransactionBroker,
    place_of,
    question,
)

_HOURS = [100, 5, -5]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[TransactionBroker]:
    made = TransactionBroker(tmp_path)
    yield made
    made.store.close()


@pytest.mark.parametrize("hours", _HOURS)
async def test_a_producer_is_checked_after_the_timeout(broker: TransactionBroker, hours: int) -> None:
    producer = broker.join()
    broker.send()
    await broker.check_after(3)
    broker.clock.set_by(hours * 3600)
    await broker.check_after(2.9)
    assert producer.received == []
    await broker.check_after(0.1)
    header, _ = question(producer)
    broker.end(COMMIT, place_of(header), from_transaction_check=True)
    assert broker.bodies(TOPIC, 2) == [b"body"]
    assert broker.bodies(GIVEN_UP) == []


@pytest.mark.parametrize("hours", _HOURS)
async def test_immunity_ends_after_its_time(broker: TransactionBroker, hours: int) -> None:
    producer = broker.join()
    broker.send(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    broker.clock.set_by(hours * 3600)
    await broker.check_after(59.9)
    assert producer.received == []
    await broker.check_after(0.1)
    question(producer)


@pytest.mark.parametrize("hours", _HOURS)
async def test_an_immune_transaction_can_be_committed(broker: TransactionBroker, hours: int) -> None:
    place = broker.send(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    broker.clock.set_by(hours * 3600)
    broker.clock.pass_seconds(59)
    broker.end(COMMIT, place)
    assert broker.bodies(TOPIC, 2) == [b"body"]


async def test_a_step_back_while_the_broker_is_down(broker: TransactionBroker) -> None:
    broker.send(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    broker.clock.set_by(-5 * 3600)
    after = await broker.restarted()
    producer = after.join()
    await after.check_after(0)
    question(producer)
    assert len(after.stored(HALF)) == 2
    after.store.close()
