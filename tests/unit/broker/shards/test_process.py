"""How the process of a shard follows its supervisor."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from rmq_broker.shards import process
from rmq_broker.shards.channel import STOP
from rmq_broker.shards.process import Supervision, end_with
from tests.support.waiting import until


@dataclass
class _Process:
    """A process whose signals to itself are recorded, with a pipe as its standard input."""

    end: int
    handler: object = None
    signals: list[int] = field(default_factory=list)

    def kill(self, pid: int, number: int) -> None:
        assert pid == os.getpid()
        self.signals.append(number)
        self.handler = signal.SIG_DFL  # as the first signal of a daemon leaves it

    def close(self) -> None:
        if self.end >= 0:
            os.close(self.end)
            self.end = -1


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Process]:
    reading, writing = os.pipe()
    own = _Process(writing)
    with os.fdopen(reading) as stream:
        monkeypatch.setattr("sys.stdin", stream)
        monkeypatch.setattr("os.kill", own.kill)
        monkeypatch.setattr("signal.getsignal", lambda _: own.handler)
        yield own
    own.close()


@pytest.mark.each_loop
async def test_a_shard_stops_when_it_is_asked_to(own: _Process) -> None:
    Supervision(has_signal=True).start()
    os.write(own.end, STOP)

    await until(lambda: own.signals)

    assert own.signals == [signal.SIGTERM]


async def test_a_shard_that_stops_already_is_not_killed(own: _Process) -> None:
    """systemd sends the first signal to the supervisor and to its shards."""
    own.handler = signal.SIG_DFL
    supervision = Supervision(has_signal=True)
    os.write(own.end, STOP)
    supervision.input_arrived()

    assert own.signals == []


async def test_the_end_of_the_supervisor_stops_the_shard_once(own: _Process) -> None:
    supervision = Supervision(has_signal=True)
    for _ in range(3):
        supervision.supervisor_ended()

    assert own.signals == [signal.SIGTERM]


async def test_the_end_of_the_supervisor_during_the_shutdown_ends_the_shard_at_once(own: _Process) -> None:
    supervision = Supervision(has_signal=True)
    os.write(own.end, STOP)
    supervision.input_arrived()
    supervision.supervisor_ended()

    # The second one finds no handler.
    assert own.signals == [signal.SIGTERM, signal.SIGTERM]


@pytest.mark.each_loop
@pytest.mark.parametrize("has_signal", [True, False])
async def test_the_end_of_the_standard_input_counts_where_no_signal_is_sent(
    own: _Process, has_signal: bool
) -> None:
    supervision = Supervision(has_signal)
    supervision.start()
    own.close()
    if has_signal:
        supervision.input_arrived()
    else:
        await until(lambda: own.signals)

    assert own.signals == ([] if has_signal else [signal.SIGTERM])


def test_a_shard_whose_supervisor_is_gone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_PR_SET_PDEATHSIG", 2)  # PR_GET_PDEATHSIG, with a bad address: no effect
    with pytest.raises(SystemExit) as ended:
        end_with(os.getppid() + 1)

    assert ended.value.code == 1
