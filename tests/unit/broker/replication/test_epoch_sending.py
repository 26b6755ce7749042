"""The master's end of a connection in a group with a controller: when a replica counts as caught up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmq_broker.replication.epoch_protocol import ReplicaHandshake, replica_handshake, replica_report
from rmq_broker.replication.epoch_sending import EpochReplicaConnection
from rmq_broker.store.api import Epoch
from tests.support.broker_settings import broker_settings


class _Master:
    """A master with a log of zeros, and a connection to one replica."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.end = 1000
        self.seconds = 0.0
        self.caught_up: list[tuple[bool, int]] = []  # with_epoch, behind_ms
        settings: Any = broker_settings(enableControllerMode=True, controllerAddr="127.0.0.1:1")
        self.connection = EpochReplicaConnection(
            cast("Any", self),
            settings,
            ThreadPoolExecutor(1),
            lambda connection, host: None,
            lambda connection: None,
            cast("Any", SimpleNamespace(epochs=(Epoch(1, 0),), at=lambda offset: (Epoch(1, 0), None))),
            cast("Any", SimpleNamespace(caught_up=self._noted, left=lambda position: None)),
        )
        # Virtual time, and nothing is sent.
        loop = SimpleNamespace(time=lambda: self.seconds, call_soon=lambda callback: None)
        monkeypatch.setattr(self.connection, "_loop", loop)
        transport = SimpleNamespace(
            get_extra_info=lambda name: ("127.0.0.1", 1) if name == "peername" else None,
            set_write_buffer_limits=lambda high: None,
            write=lambda data: None,
            writelines=lambda parts: None,
        )
        self.connection.connection_made(cast("Any", transport))
        self.connection.data_received(replica_handshake(ReplicaHandshake(False, False, 2)))
        self.replicas = SimpleNamespace(
            join=lambda name, offset, broker_id: SimpleNamespace(broker_id=broker_id),
            acknowledge=lambda position, offset: None,
            leave=lambda position: None,
            confirmed_offset=0,
        )

    def _noted(self, position: object, *, with_epoch: bool, behind_ms: int) -> None:
        self.caught_up.append((with_epoch, behind_ms))

    def reports(self, offset: int, seconds: float) -> list[tuple[bool, int]]:
        """Let a report arrive; return what the in-sync set hears of it."""
        self.seconds, self.caught_up = seconds, []
        self.connection.data_received(replica_report(offset))
        return self.caught_up

    # The store.

    @property
    def transferable_end(self) -> int:
        return self.end

    def min_phy_offset(self) -> int:
        return 0


@pytest.fixture
async def master(monkeypatch: pytest.MonkeyPatch) -> _Master:
    return _Master(monkeypatch)


async def test_a_replica_that_begins_has_not_caught_up(master: _Master) -> None:
    assert master.reports(0, 10.0) == []
    assert master.reports(999, 11.0) == []
    assert master.reports(1000, 12.0) == [(True, 0)]


async def test_a_replica_with_the_whole_log_has_caught_up_at_once(master: _Master) -> None:
    assert master.reports(1000, 10.0) == [(True, 0)]


async def test_a_replica_catches_up_although_messages_come_all_the_time(master: _Master) -> None:
    """It never has the whole log, since it is half a second behind."""
    assert master.reports(1000, 10.0) == [(True, 0)]
    heard = []
    for tick in range(1, 40):
        master.end = 1000 + tick * 100
        heard += master.reports(max(1000, master.end - 500), 10 + tick * 0.1)
    assert len(heard) >= 5
    assert all(with_epoch and behind_ms <= 1000 for with_epoch, behind_ms in heard)


async def test_a_slow_replica_is_told_to_be_behind(master: _Master) -> None:
    assert master.reports(0, 10.0) == []
    master.end = 2000
    assert master.reports(1000, 30.0) == [(True, 20_000)]
    assert master.reports(1999, 31.0) == []
    master.end = 3000
    assert master.reports(2000, 32.0) == [(True, 2000)]
