"""The broker of the tests here, where its settings do not matter, and connections to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path) as running:
        yield running


@pytest.fixture
async def client(broker: RunningBroker) -> AsyncIterator[RawClient]:
    async with broker.client() as connected:
        yield connected


@pytest.fixture
async def member(broker: RunningBroker) -> AsyncIterator[RawClient]:
    """A connection for heartbeats: the broker sends notifications to it at any time."""
    async with broker.client() as connected:
        yield connected
