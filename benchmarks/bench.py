"""Both sides of a comparison, running: the argument of every load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from benchmarks.comparison import Figure, alternate, count_failed
from benchmarks.load import CLIENT_JVM, LoadClient, LoadResult
from tests.support import toolchain
from tests.support.processes import Usage

# The serializations of headers. JSON is the default of Apache's Java client.
HEADERS: Final = {"ROCKETMQ": "binary headers", "JSON": "JSON headers"}
# The client trusts the self-signed certificate that either broker has by default.
_TLS: Final = "-Dtls.enable=true"


class Servers(Protocol):
    """A name server and a broker of one side."""

    @property
    def namesrv_address(self) -> str:
        """Address of the name server, HOST:PORT."""

    @property
    def port(self) -> int:
        """Port of the broker."""

    def usage(self) -> Usage:
        """Return CPU time and memory of the broker so far."""


@dataclass(slots=True)
class Bench:
    """Both sides, running. Clients use `header` headers; both brokers answer in the same serialization."""

    ours: Servers
    peer: Servers
    home: Path
    rounds: int
    seconds: int
    header: str
    _clients: dict[str, LoadClient] = field(default_factory=dict)

    @property
    def headers(self) -> str:
        """The serialization as text for the name of a row."""
        return HEADERS[self.header]

    def servers(self, side: str) -> Servers:
        """Return the servers of one side, "ours" or "peer"."""
        return self.ours if side == "ours" else self.peer

    def client(self, side: str, *, tls: bool = False) -> LoadClient:
        """Return the load program for one side. It keeps running, with its code compiled, until `close`."""
        name = f"{side}-tls" if tls else side
        if name not in self._clients:
            self._clients[name] = LoadClient(
                toolchain.bench_client(),
                self.servers(side).namesrv_address,
                self.home / f"{name}-{self.header}",
                header=self.header,
                jvm_options=(*CLIENT_JVM, _TLS) if tls else CLIENT_JVM,
                keep_running=True,
            )
        return self._clients[name]

    def close(self) -> None:
        """End the load programs."""
        for client in self._clients.values():
            client.close()

    def usage(self, side: str) -> Callable[[], Usage]:
        """Return the function that reads the usage of one side's broker."""
        return self.servers(side).usage

    async def compare(
        self,
        figures: Sequence[Figure],
        measure: Callable[[str], Awaitable[LoadResult]],
        values: Callable[[LoadResult], Sequence[float]],
    ) -> Sequence[Figure]:
        """Alternate the sides after a warm-up. Few failed sends are counted; more raise RuntimeError."""

        async def side(name: str) -> Sequence[float]:
            result = await measure(name)
            count_failed(figures, name, result)
            return values(result)

        await alternate(figures, lambda: side("ours"), lambda: side("peer"), self.rounds, warm_up=True)
        return figures


Load: TypeAlias = Callable[[Bench], Awaitable[Sequence[Figure]]]
"""One or more rows of a table; its docstring describes the measurement."""
