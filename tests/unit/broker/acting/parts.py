"""A broker's directory, opened by a master first and then by a replica that acts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rmq_broker.delivery.inner_message import InnerMessage
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from tests.support.clock import Clock
from tests.support.waiting import loop_passes
from tests.unit.broker.pop.parts import GROUP, PopBroker
from tests.unit.broker.transactions.parts import TransactionBroker


class OtherMasters:
    """Other masters of the cluster: they store what a replica sends them, except topics in `refused`."""

    def __init__(self) -> None:
        self.stored: list[InnerMessage] = []
        self.attempts = 0
        self.refused: set[bytes] = set()

    async def put_all(self, messages: Sequence[InnerMessage]) -> list[str]:
        self.attempts += 1
        await loop_passes(1)
        self.stored += [message for message in messages if message.body not in self.refused]
        return ["refused" if message.body in self.refused else "" for message in messages]

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.stored]


class GroupBroker(TransactionBroker, PopBroker):
    """A master with the topic T and the group CG."""

    def __init__(self, folder: Path, clock: Clock | None = None, **keys: object) -> None:
        super().__init__(folder, clock, **keys)
        self.groups.update(SubscriptionGroupConfig(group_name=GROUP))

    def acting(self, monkeypatch: pytest.MonkeyPatch) -> tuple[GroupBroker, OtherMasters]:
        """Close this broker, and open its directory as a replica, which has the same offsets."""
        self.store.close()
        self.clock.restart()
        replica = GroupBroker(self.folder, self.clock, brokerRole="SLAVE", brokerId=1)
        replica.offsets.decode(self.offsets.encode())
        others = OtherMasters()
        monkeypatch.setattr(replica.services.escape, "put_all", others.put_all)
        return replica, others
