"""Fixtures of the tests of POP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.broker.pop.parts import PopBroker, pop_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PopBroker]:
    with pop_broker(tmp_path) as broker:
        await broker.pops.load()
        yield broker
