"""A name server and brokers in memory with faults to order, for tests of the SDK and of its users.

A fault refuses, delays or drops the answer to a request, or cuts its connection. The servers implement only
what clients need. Tests without such faults use real servers (`clusters`).
"""

from __future__ import annotations

from typing import Self

from .broker import FakeBroker
from .namesrv import FakeNamesrv
from .server import Fault
from .store import BORN_MS

__all__ = ["BORN_MS", "FakeBroker", "FakeCluster", "FakeNamesrv", "Fault"]


class FakeCluster:
    """`async with FakeCluster({"broker-a": {"T": 4}}) as cluster`: queue counts by broker name and topic."""

    def __init__(self, brokers: dict[str, dict[str, int]]) -> None:
        self.brokers = {name: FakeBroker(name, dict(topics)) for name, topics in brokers.items()}
        self.namesrv = FakeNamesrv(self.brokers)

    @property
    def address(self) -> str:
        return self.namesrv.address

    @property
    def broker(self) -> FakeBroker:
        """The first broker."""
        return next(iter(self.brokers.values()))

    async def __aenter__(self) -> Self:
        for server in (*self.brokers.values(), self.namesrv):
            await server.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in (self.namesrv, *self.brokers.values()):
            await server.close()
