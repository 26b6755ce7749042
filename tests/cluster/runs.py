"""One run: load, faults one after the other, the end of the load, and all checks."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from .faults import FaultKind, inject
from .group import Group
from .history import statuses
from .recovery_times import report, seconds_to_first_accepted

# How long the long runs inject faults, and the load's sends per second.
LONG_SECONDS: Final = float(os.environ.get("RMQ_FAULT_SECONDS", "600"))
LONG_RATE: Final = float(os.environ.get("RMQ_FAULT_RATE", "100"))


async def run(
    group: Group,
    kinds: Mapping[str, FaultKind],
    names: Iterable[str],
    chance: random.Random,
    *,
    rate: float,
    hold_seconds: float | None = None,
) -> None:
    """Inject faults of these names, with `rate` sends per second; print times and answers."""
    await group.start_load(rate)
    for name in names:
        print(f"{name}: ", end="", flush=True)
        fault = await inject(name, kinds[name], group, chance, hold_seconds)
        healed, whole = fault.healed - fault.began, fault.whole - fault.began
        print(f"healed after {healed:.1f} s, whole after {whole:.1f} s", flush=True)
    await group.end_load()
    history = group.history
    print(f"sends by answer: {statuses(history.sends)}; deliveries: {len(history.deliveries)}")
    print(report(seconds_to_first_accepted(history.faults, history.sends)), flush=True)
    await group.stop_and_check()


def random_order(group: Group, kinds: Mapping[str, FaultKind], chance: random.Random) -> Iterator[str]:
    """All faults in random order again and again, until LONG_SECONDS are over."""
    while True:
        for name in chance.sample(list(kinds), len(kinds)):
            faults = group.history.faults
            if faults and faults[-1].whole - faults[0].began > LONG_SECONDS:
                return
            yield name
