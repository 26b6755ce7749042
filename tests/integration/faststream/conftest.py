"""A RocketBroker for the tests of this folder."""

from __future__ import annotations

import pytest

from rmq_faststream import RocketBroker


@pytest.fixture
def broker(rmq_namesrv: str) -> RocketBroker:
    return RocketBroker(rmq_namesrv, logger=None)
