"""Changes of an invisible time that cannot be stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.pop.check_point import QueueKey
from rmq_broker.store.api import StoreUnavailable
from rmq_remoting.errors import CommandError
from tests.unit.broker.pop.parts import GROUP, pop_broker, receipt_of


def _refuse(*arguments: object, **named: object) -> None:
    raise StoreUnavailable("full")


async def test_a_receipt_stays_valid_if_its_change_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pop_broker(tmp_path) as broker:
        await broker.pops.load()
        broker.put(1)
        pop = broker.pop()
        with monkeypatch.context() as patch:
            patch.setattr(broker.store, "put", _refuse)
            with pytest.raises(CommandError, match="Try again"):
                broker.pops.acknowledging.change_invisible_time(
                    QueueKey("T", GROUP, 0), receipt_of(pop), 0, 1000
                )
        broker.ack(pop, 0)
        assert len(broker.pops.in_flight) == 0
        await broker.pass_seconds(2)
        assert broker.pop().count == 0
