"""The metrics that every daemon has."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from rmq_remoting.daemon.exposition import Collector, Family, gauge
from rmq_remoting.daemon.metrics import (
    GarbageCollectionProbe,
    LoopLagProbe,
    MetricsRegistry,
    ProcessCollector,
    TaskCollector,
)
from rmq_remoting.daemon.tasks import TaskSupervisor
from tests.support.waiting import until


def _text(*collectors: Collector) -> str:
    registry = MetricsRegistry()
    for collector in collectors:
        registry.register(collector)
    return "".join(registry.render())


async def test_the_lag_of_a_blocked_loop_is_measured() -> None:
    probe = LoopLagProbe(period_seconds=0.001)
    probe.start()
    time.sleep(0.05)  # noqa: ASYNC251 (blocks the loop, to measure that)
    await until(lambda: probe.lags.total >= 0.045)
    probe.stop()
    assert f"rmq_event_loop_lag_seconds_sum {probe.lags.total}" in _text(probe)


async def test_a_stopped_probe_does_not_measure() -> None:
    probe = LoopLagProbe(period_seconds=0.0001)
    probe.start()
    probe.stop()
    await asyncio.sleep(0.005)
    assert sum(probe.lags.counts) == 0


def test_collections_are_counted_and_timed() -> None:
    probe = GarbageCollectionProbe()
    probe.start()
    gc.collect()
    probe.stop()
    gc.collect()
    assert sum(probe.pauses.counts) == 1
    assert 'python_gc_collections_total{generation="2"}' in _text(probe)


def test_memory_and_files_of_the_process_are_reported() -> None:
    lines = dict(line.split() for line in _text(ProcessCollector()).splitlines() if line[0] != "#")
    resident, own = (
        float(lines[name]) for name in ("process_resident_memory_bytes", "rmq_process_own_memory_bytes")
    )
    assert 1 << 20 < own < resident < 1 << 40
    assert 0 < float(lines["process_open_fds"]) <= float(lines["process_max_fds"])
    assert float(lines["rmq_process_threads"]) >= 1
    assert 0 < float(lines["process_cpu_seconds_total"]) < 1e6


def test_without_proc_the_other_figures_are_reported(tmp_path: Path) -> None:
    text = _text(ProcessCollector(tmp_path))
    assert "process_cpu_seconds_total" in text
    assert "process_open_fds" not in text


async def test_failures_of_tasks_are_reported() -> None:
    supervisor = TaskSupervisor(lambda *_: None)
    supervisor.every("scan", 60.0, lambda: None)
    await asyncio.sleep(0)
    supervisor.statistics["scan"].failures = 2
    text = _text(TaskCollector(supervisor))
    assert 'rmq_task_running{task="scan"} 1\n' in text
    assert 'rmq_task_failures_total{task="scan"} 2\n' in text
    await supervisor.stop()


def test_a_collector_that_fails_is_omitted_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def collect(self) -> Iterable[Family]:
            yield gauge("rmq_before", "", 1)
            raise ZeroDivisionError

    class Whole:
        def collect(self) -> Iterable[Family]:
            yield gauge("rmq_whole", "", 1)

    text = _text(Broken(), Whole())
    assert "rmq_before 1\n" in text
    assert "rmq_whole 1\n" in text
    assert "rmq_scrape_failures_total 1\n" in text
    assert "metrics not collected collector=Broken" in caplog.text
