"""Several hosts and the switch between them, as a test uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from .hosts import Host
from .switch import Counts, Fault

_PROJECT: Final = Path(__file__).resolve().parents[2]
_END_SECONDS: Final = 10

# A direction between two hosts, by their names.
Direction = tuple[str, str]


class Network:
    """`with Network(["names", "a", "b"], seed) as network`: hosts that reach each other, until a fault."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        """Raises OSError."""
        self.hosts: dict[str, Host] = {}
        self._faults: dict[Direction, Fault] = {}
        try:
            for number, name in enumerate(names, 1):
                self.hosts[name] = Host(name, number)
            self._names = {host.address: name for name, host in self.hosts.items()}
            self._switch = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.cluster.switch", str(seed)),
                    *(f"{host.address}={host.tun}" for host in self.hosts.values()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[host.tun for host in self.hosts.values()],
                cwd=_PROJECT,
            )
        except BaseException:
            self._close_hosts()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set(self, faults: Mapping[Direction, Fault]) -> dict[Direction, Counts]:
        """Replace all faults of the network; return the counts of packets so far."""
        switch = self._switch
        assert switch.stdin is not None
        assert switch.stdout is not None
        lines = [
            [
                self.hosts[one].address,
                self.hosts[other].address,
                *(fault.loss, fault.delay_seconds, fault.is_cut),
            ]
            for (one, other), fault in faults.items()
        ]
        switch.stdin.write(json.dumps(lines).encode() + b"\n")
        switch.stdin.flush()
        answer = switch.stdout.readline()
        assert answer, f"the switch has ended: {switch.poll()}"
        return {
            (self._names[source], self._names[to]): Counts(*counts)
            for source, to, *counts in json.loads(answer)
            if source in self._names
        }

    def heal(self) -> dict[Direction, Counts]:
        """End all faults of the network."""
        return self.set({})

    def others(self, name: str) -> list[str]:
        """The names of all other hosts."""
        return [each for each in self.hosts if each != name]

    def sending(self, name: str, to: Iterable[str] | None = None) -> list[Direction]:
        """The directions from a host to others, or to all others."""
        return [(name, other) for other in (self.others(name) if to is None else to)]

    def receiving(self, name: str, of: Iterable[str] | None = None) -> list[Direction]:
        """The directions to a host from others, or from all others."""
        return [(other, name) for other in (self.others(name) if of is None else of)]

    def both(self, name: str, others: Iterable[str] | None = None) -> list[Direction]:
        """Both directions."""
        chosen = list(self.others(name) if others is None else others)
        return self.sending(name, chosen) + self.receiving(name, chosen)

    def close(self) -> None:
        """End the switch, and close the hosts."""
        switch = self._switch
        for pipe in (switch.stdin, switch.stdout):
            if pipe is not None:
                pipe.close()
        try:
            switch.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            switch.kill()
            switch.wait()
        self._close_hosts()

    def _close_hosts(self) -> None:
        for host in self.hosts.values():
            host.close()
