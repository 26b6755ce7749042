"""Metrics that every daemon has, and the registry of collectors that a scrape reads.

Names: `rocketmq_…` are Apache RocketMQ 5.3.3's. `process_…` and `python_…` are those of Prometheus' Python
client, which common dashboards use. `rmq_…` are this project's own.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from .exposition import Collector, Family, Field, counter, fields_of, gauge, render
from .histogram import Histogram
from .tasks import TaskSupervisor

log = logging.getLogger("rmq.metrics")

_PAUSE_BOUNDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
_PROBE_SECONDS: Final = 0.5  # it wakes an idle daemon as often
_TASK_FIELDS: Final = {
    "running": Field("rmq_task_running", "gauge", "Whether a background task runs: 1 or 0."),
    "failures": Field("rmq_task_failures_total", "counter", "Failures of a background task."),
}


class MetricsRegistry:
    """The collectors of one process, and the labels that all their series have."""

    def __init__(self, common_labels: Mapping[str, str] | None = None) -> None:
        self.common_labels = dict(common_labels or {})
        self.failures = 0
        self._collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Include a collector in every scrape."""
        self._collectors.append(collector)

    def collectors(self) -> Sequence[Collector]:
        """Return the registered collectors, in their order."""
        return tuple(self._collectors)

    def render(self) -> Iterator[str]:
        """Yield the exposition in pieces. A collector that fails is logged, counted and omitted."""
        for collector in self._collectors:
            try:
                yield from render(collector.collect(), self.common_labels)
            except Exception:
                self.failures += 1
                log.exception("metrics not collected collector=%s", type(collector).__name__)
        failures = counter(
            "rmq_scrape_failures_total", "Collectors that failed during a scrape.", self.failures
        )
        yield from render([failures], self.common_labels)


class LoopLagProbe:
    """Delay of a timer on the event loop: the time that any request on the loop waits at that moment."""

    def __init__(self, period_seconds: float = _PROBE_SECONDS) -> None:
        self.lags = Histogram(_PAUSE_BOUNDS)
        self.last_seconds = 0.0
        self._period_seconds = period_seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start measuring the running loop."""
        # Not loop.time(): uvloop's has a resolution of 1 ms and does not advance during an iteration.
        due = time.monotonic() + self._period_seconds
        self._timer = asyncio.get_running_loop().call_later(self._period_seconds, self._fired, due)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def collect(self) -> Iterable[Family]:
        """Yield the lag's distribution and its last value."""
        yield Family(
            "rmq_event_loop_lag_seconds",
            "histogram",
            f"Delay of a timer on the event loop, sampled every {self._period_seconds} s.",
            [((), self.lags)],
        )
        yield gauge(
            "rmq_event_loop_lag_last_seconds", "Delay of the timer in the last sample.", self.last_seconds
        )

    def _fired(self, due: float) -> None:
        self.last_seconds = max(0.0, time.monotonic() - due)
        self.lags.observe(self.last_seconds)
        self.start()


class GarbageCollectionProbe:
    """Frequency and pauses of Python's cycle collector."""

    def __init__(self) -> None:
        self.pauses = Histogram(_PAUSE_BOUNDS)
        self._began = 0.0

    def start(self) -> None:
        """Start measuring."""
        gc.callbacks.append(self._called)

    def stop(self) -> None:
        """Stop measuring."""
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def collect(self) -> Iterable[Family]:
        """Yield collections by generation, and the pauses."""
        generations = gc.get_stats()
        for key, name, meaning in (
            ("collections", "python_gc_collections_total", "Runs of the cycle collector."),
            ("collected", "python_gc_objects_collected_total", "Objects that the cycle collector freed."),
            (
                "uncollectable",
                "python_gc_objects_uncollectable_total",
                "Objects that the cycle collector could not free.",
            ),
        ):
            series = [((str(number),), stats[key]) for number, stats in enumerate(generations)]
            yield Family(name, "counter", meaning, series, ("generation",))
        yield Family(
            "rmq_gc_pause_seconds",
            "histogram",
            "Duration of the runs of the cycle collector.",
            [((), self.pauses)],
        )

    def _called(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.pauses.observe(time.perf_counter() - self._began)


class ProcessCollector:
    """Memory, CPU time, threads and open files of this process, as reported by Linux."""

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self._proc = proc
        self._page_bytes = resource.getpagesize()
        self._started_at = time.time()

    def collect(self) -> Iterable[Family]:
        """Yield the figures now; without /proc its figures are omitted."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield counter("process_cpu_seconds_total", "CPU time used.", usage.ru_utime + usage.ru_stime)
        yield gauge(
            "process_start_time_seconds", "Start time of the process in seconds since 1970.", self._started_at
        )
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield gauge("process_max_fds", "Limit of open files and connections.", limit)
        version = ".".join(map(str, sys.version_info[:3]))
        yield Family("python_info", "gauge", "Python's version.", [((version,), 1)], ("version",))
        try:
            yield from self._of_proc()
        except OSError as error:
            log.debug("process figures not read cause=%s", error)

    def _of_proc(self) -> Iterable[Family]:
        virtual, resident, shared = (
            int(text) * self._page_bytes for text in (self._proc / "statm").read_text().split()[:3]
        )
        yield gauge("process_virtual_memory_bytes", "Address space in use.", virtual)
        yield gauge("process_resident_memory_bytes", "Memory in use, mapped files included.", resident)
        yield gauge("rmq_process_own_memory_bytes", "Memory in use, without mapped files.", resident - shared)
        open_files = _entries(self._proc / "fd")
        yield gauge("process_open_fds", "Files and connections open now.", open_files)
        yield gauge("rmq_process_threads", "Threads of the process.", _entries(self._proc / "task"))


def _entries(folder: Path) -> int:
    with os.scandir(folder) as entries:  # without path objects, since there may be 50,000 connections
        return sum(1 for _ in entries)


class TaskCollector:
    """The background tasks of a daemon."""

    def __init__(self, supervisor: TaskSupervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterable[Family]:
        """Yield, by task, whether it runs and how often it failed."""
        yield from fields_of("task", self._supervisor.statistics, _TASK_FIELDS)
