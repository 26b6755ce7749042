"""A stop writes no offset before its check point is flushed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.offsets.table import ConsumerOffsetTable
from tests.support.broker_requests import create_topic, send, sent, succeeded
from tests.support.brokers import broker_configuration, running_broker
from tests.support.clock import Clock
from tests.support.pop_requests import pop, popped
from tests.unit.broker.pop.parts import GROUP, pop_broker

# The log is flushed at the stop alone.
_RARELY = {
    "flushIntervalCommitLog": 60_000,
    "flushCommitLogThoroughInterval": 600_000,
    "flushCommitLogLeastPages": 100_000,
}


@pytest.mark.parametrize("all_is_flushed", [True, False])
async def test_the_offsets_that_a_stop_commits(tmp_path: Path, all_is_flushed: bool) -> None:
    with pop_broker(tmp_path) as broker:
        await broker.pops.load()
        broker.put(3)
        broker.ack(broker.pop(most=2), 0, 1)
        await broker.pops.stop()
        assert broker.offsets.query(GROUP, "T", 0) == 0
        assert broker.pops.finish(all_is_flushed=all_is_flushed) is all_is_flushed
        assert broker.offsets.query(GROUP, "T", 0) == (2 if all_is_flushed else 0)
        if all_is_flushed:
            assert broker.pops.positions.included_up_to == broker.pops.journal.end
            assert broker.pops.positions.outstanding_from == broker.pops.journal.end
            assert not broker.pops.finish(all_is_flushed=True)


async def test_offsets_are_written_after_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    file = broker_configuration(tmp_path).settings.config_dir / "consumerOffset.json"

    def committed() -> int:
        table = ConsumerOffsetTable(Clock())
        table.decode(file.read_bytes())
        return table.query(GROUP, "T", 0)

    async with running_broker(tmp_path, **_RARELY) as running, running.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        sent(await client.ask(send("T", b"x")))
        assert len(popped(await client.ask(pop("T")))) == 1
        store = running.store
        stop = store.stop

        async def stop_the_store() -> None:
            written.append(committed())
            await stop()

        monkeypatch.setattr(store, "stop", stop_the_store)
    written.append(committed())
    assert written == [0, 1]
