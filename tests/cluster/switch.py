"""The network between hosts: forwards IP packets, and loses, delays or drops them as told.

    python -m tests.cluster.switch SEED ADDRESS=DESCRIPTOR ...

Each descriptor is that of a host's TUN device. A line of JSON on the standard input replaces all faults: a
list of `[from, to, loss, delay_seconds, is_cut]`, one for each direction with a fault. The answer is a line
with the counts so far: a list of `[from, to, forwarded, lost, cut, overflowed]`.

TCP runs in the hosts' kernels, so a fault shows as on a real network: retransmissions, closed windows,
connections that are half open.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import selectors
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

_LARGEST_PACKET: Final = 65_535
# Of one device before the others have their turn.
_TURN_PACKETS: Final = 64
# Delayed packets. Packets beyond this bound are dropped, as a network does.
_MOST_DELAYED: Final = 20_000
_IPV4: Final = 4
_HEADER_BYTES: Final = 20

Route = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one direction between two hosts. `loss`: share of the packets."""

    loss: float = 0.0
    delay_seconds: float = 0.0
    is_cut: bool = False


@dataclass(slots=True)
class Counts:
    """Packets of one direction."""

    forwarded: int = 0
    lost: int = 0
    cut: int = 0
    overflowed: int = 0


class Due(NamedTuple):
    """A packet that is to be forwarded."""

    at: float
    number: int  # packets with the same time keep their order
    to: str
    packet: bytes


class Rules:
    """Decides about each packet; no I/O. The same seed makes the same decisions."""

    def __init__(self, addresses: Iterable[str], seed: int) -> None:
        self._addresses = frozenset(addresses)
        self._chance = random.Random(seed)
        self._faults: Mapping[Route, Fault] = {}
        self._delayed: list[Due] = []
        self._number = 0
        self.counts: dict[Route, Counts] = {}

    def set(self, faults: Mapping[Route, Fault]) -> None:
        """Replace all faults. Delayed packets keep their delay."""
        self._faults = dict(faults)

    def take(self, packet: bytes, now: float) -> str | None:
        """Return the host that a packet is written to now; None if it is dropped or delayed."""
        route = route_of(packet)
        if route is None or route[1] not in self._addresses:
            return None
        counts = self.counts.get(route)
        if counts is None:
            counts = self.counts[route] = Counts()
        fault = self._faults.get(route)
        if fault is not None:
            if fault.is_cut:
                counts.cut += 1
                return None
            if fault.loss and self._chance.random() < fault.loss:
                counts.lost += 1
                return None
            if fault.delay_seconds:
                if len(self._delayed) >= _MOST_DELAYED:
                    counts.overflowed += 1
                    return None
                self._number += 1
                heapq.heappush(self._delayed, Due(now + fault.delay_seconds, self._number, route[1], packet))
                counts.forwarded += 1
                return None
        counts.forwarded += 1
        return route[1]

    def due(self, now: float) -> list[Due]:
        """Remove and return the delayed packets whose time has come, in order."""
        found = []
        while self._delayed and self._delayed[0].at <= now:
            found.append(heapq.heappop(self._delayed))
        return found

    def wait_seconds(self, now: float) -> float | None:
        """How long until a delayed packet is due; None if there is none."""
        return max(0.0, self._delayed[0].at - now) if self._delayed else None


def route_of(packet: bytes) -> Route | None:
    """The source and the destination of an IPv4 packet; None for any other."""
    if len(packet) < _HEADER_BYTES or packet[0] >> 4 != _IPV4:
        return None
    source, destination = packet[12:16], packet[16:20]
    return ".".join(map(str, source)), ".".join(map(str, destination))


class _Switch:
    """Moves packets between devices until the standard input ends."""

    def __init__(self, devices: Mapping[str, int], seed: int) -> None:
        self._devices = devices
        self._rules = Rules(devices, seed)
        self._commands = b""

    def run(self) -> None:
        selector = selectors.DefaultSelector()
        standard_input = sys.stdin.fileno()
        for descriptor in (standard_input, *self._devices.values()):
            selector.register(descriptor, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(self._rules.wait_seconds(time.monotonic())):
                if key.fd != standard_input:
                    self._forward_from(key.fd)
                elif not self._obey():
                    return
            for due in self._rules.due(time.monotonic()):
                self._write(due.to, due.packet)

    def _forward_from(self, descriptor: int) -> None:
        now = time.monotonic()
        for _ in range(_TURN_PACKETS):
            try:
                packet = os.read(descriptor, _LARGEST_PACKET)
            except BlockingIOError:
                return
            to = self._rules.take(packet, now)
            if to is not None:
                self._write(to, packet)

    def _write(self, to: str, packet: bytes) -> None:
        with suppress(OSError):  # its queue is full: the packet is lost, as on a network
            os.write(self._devices[to], packet)

    def _obey(self) -> bool:
        """Read commands; False at the end of the input."""
        data = os.read(sys.stdin.fileno(), 65_536)
        self._commands += data
        *lines, self._commands = self._commands.split(b"\n")
        for line in lines:
            self._rules.set({(source, to): Fault(*rest) for source, to, *rest in json.loads(line)})
            counts = [
                [*route, each.forwarded, each.lost, each.cut, each.overflowed]
                for route, each in self._rules.counts.items()
            ]
            print(json.dumps(counts), flush=True)
        return bool(data)


def main() -> None:
    """Run the switch."""
    seed, *words = sys.argv[1:]
    pairs = (word.split("=") for word in words)
    _Switch({address: int(descriptor) for address, descriptor in pairs}, int(seed)).run()


if __name__ == "__main__":
    main()
