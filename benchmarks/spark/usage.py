"""Resource usage of a measurement: CPU by component, and memory of Python workers (Linux: /proc)."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_RESET_PEAK: Final = "5"  # proc(5), clear_refs


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds, user and system, of Spark's JVM, its Python processes and the broker."""

    jvm: float
    python: float
    broker: float

    @property
    def executors(self) -> float:
        """The CPU of Spark's JVM and its Python processes."""
        return self.jvm + self.python

    @property
    def total(self) -> float:
        """The sum of all three."""
        return self.executors + self.broker


class CpuMeter:
    """Measures from its creation on; Python workers may start and end meanwhile."""

    def __init__(self, jvm_pid: int, broker_pid: int) -> None:
        self._jvm_pid = jvm_pid
        self._broker_pid = broker_pid
        self._before = self._look()

    def used(self) -> Cpu:
        """Return the usage since the creation."""
        before, now = self._before, self._look()
        none = _Seconds(0.0, 0.0)
        grown = {pid: used - before.get(pid, none) for pid, used in now.items()}
        # Ended processes count with the parent that waited for them; the CPU of orphans is unknown.
        ended = sum(before[pid].own + before[pid].children for pid in before.keys() - now.keys())
        waited_for = sum(each.children for pid, each in grown.items() if pid != self._broker_pid)
        living = sum(each.own for pid, each in grown.items() if pid not in (self._jvm_pid, self._broker_pid))
        return Cpu(
            grown[self._jvm_pid].own, living + max(0.0, waited_for - ended), grown[self._broker_pid].own
        )

    def _look(self) -> dict[int, _Seconds]:
        """Return the usage of all processes now.

        The process of a stream ends about when its query does. If the JVM takes its CPU over while this
        method reads, the process would count twice or not at all.
        """
        while True:
            seen = self._look_once()
            if seen[self._jvm_pid].children == _seconds(self._jvm_pid).children:
                return seen

    def _look_once(self) -> dict[int, _Seconds]:
        seen = {pid: _seconds(pid) for pid in (self._jvm_pid, self._broker_pid)}
        for pid in descendants(self._jvm_pid):
            with suppress(FileNotFoundError, ProcessLookupError):  # the process has just ended
                seen[pid] = _seconds(pid)
        return seen


def descendants(pid: int) -> list[int]:
    """Return the live descendants of a process."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                children.setdefault(int(_fields(int(folder.name))[1]), []).append(int(folder.name))
    found = list(children.get(pid, []))
    for each in found:  # the list grows meanwhile
        found += children.get(each, [])
    return found


def reset_peaks(jvm_pid: int) -> None:
    """Reset the peak memory of the Python processes."""
    for pid in descendants(jvm_pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)


def peak_bytes(jvm_pid: int) -> int:
    """Return the largest peak of resident memory of the live Python processes; RuntimeError without any."""
    peaks = [peak for pid in descendants(jvm_pid) if (peak := _peak_bytes(pid))]
    if not peaks:
        raise RuntimeError("there is no Python worker: they end after a minute of idleness")
    return max(peaks)


def _peak_bytes(pid: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


@dataclass(frozen=True, slots=True)
class _Seconds:
    """Return the CPU of a process, and of its ended children that were waited for."""

    own: float
    children: float

    def __sub__(self, earlier: _Seconds) -> _Seconds:
        return _Seconds(self.own - earlier.own, self.children - earlier.children)


def _seconds(pid: int) -> _Seconds:
    user, system, children_user, children_system = (int(field) for field in _fields(pid)[11:15])
    return _Seconds(
        (user + system) / _TICKS_PER_SECOND, (children_user + children_system) / _TICKS_PER_SECOND
    )


def _fields(pid: int) -> list[str]:
    """Return the fields that proc(5) numbers from 3 on: state, parent …"""
    # The command name in parentheses may contain anything; the fields after its last ')' do not.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
