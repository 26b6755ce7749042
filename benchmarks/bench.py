"""Both sides of a comparison, running: what every load on them is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.comparison import Figure, alternate
from benchmarks.load import LoadClient, LoadResult
from benchmarks.ours import OurServers
from benchmarks.peer import ApachePeer
from tests.support import toolchain
from tests.support.processes import Usage


@dataclass(slots=True)
class Bench:
    """Both sides, running, with a client each."""

    ours: OurServers
    theirs: ApachePeer
    home: Path
    rounds: int
    seconds: int

    def client(self, side: str, header: str = "ROCKETMQ") -> LoadClient:
        """The load program against one side."""
        address = self.ours.namesrv_address if side == "ours" else self.theirs.namesrv.address
        return LoadClient(toolchain.bench_client(), address, self.home / f"{side}-{header}", header=header)

    def usage(self, side: str) -> Callable[[], Usage]:
        """Reads the usage of one side's broker."""
        return self.ours.usage if side == "ours" else self.theirs.broker.usage

    async def compare(
        self,
        figures: Sequence[Figure],
        measure: Callable[[str], Awaitable[LoadResult]],
        values: Callable[[LoadResult], Sequence[float]],
    ) -> Sequence[Figure]:
        """Alternate the sides; a round with errors is no measurement."""

        async def side(name: str) -> Sequence[float]:
            result = await measure(name)
            if result.errors:
                raise RuntimeError(f"{result.errors} sends failed on {name}: {result.values}")
            return values(result)

        await alternate(figures, lambda: side("ours"), lambda: side("theirs"), self.rounds)
        return figures


Load: TypeAlias = Callable[[Bench], Awaitable[Sequence[Figure]]]
"""One or more lines of a table; its docstring says what it measures."""
