"""Hostile connections to a broker on this machine, from one frugal process.

`python -m tests.crash.hostile_load PORT TOPIC COUNTS` obeys the lines of its standard input, and prints its
state as JSON once a second:

    attack    open all connections of COUNTS, a JSON object with the fields of `Counts`, and keep them
    rest      close them

Four kinds of connections are kept, from fifteen addresses of the loopback network:

- Idle ones. Half of them never send a byte. The others send a small request every 45 s.
- Slow senders. Each sends one byte of a frame a second.
- Slow readers. Each asks for four answers of 256 KiB, reads none, and begins again after 30 s.
- Passing ones. Each lives for about 20 ms, and sends nothing, a request, or half a request.

A connection that the broker closes is opened again: a slow reader after 10 s, another one at once.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Final

from rmq_remoting.codes import RequestCode
from rmq_remoting.framing import encode_frame
from tests.support.broker_requests import pull, request, send
from tests.support.ports import LOOPBACK

_SOURCES: Final = [f"127.0.0.{last}" for last in range(2, 17)]
_TICK_SECONDS: Final = 0.02
_OPENED_PER_SECOND: Final = 1_000
_KEEP_ALIVE_SECONDS: Final = 45.0
_DRIBBLE_SECONDS: Final = 1.0
_READER_SECONDS: Final = 30.0
_READER_PAUSE_SECONDS: Final = 10.0
_ANSWERS: Final = 4
_STATE_SECONDS: Final = 1.0
_READ_BYTES: Final = 65_536
_SMALL_BUFFER: Final = 4_096
_IP_BIND_ADDRESS_NO_PORT: Final = 24  # the port is chosen by connect(), so that each source has all ports
_RESET: Final = struct.pack("ii", 1, 0)
_READY: Final = select.EPOLLIN | select.EPOLLRDHUP


@dataclass(frozen=True, slots=True)
class Counts:
    """Connections of each kind that are kept, and those opened and dropped per second."""

    idle: int
    slow_senders: int
    slow_readers: int
    dropped_per_second: int

    @property
    def kept(self) -> int:
        """All connections that are kept at a time."""
        return self.idle + self.slow_senders + self.slow_readers


@dataclass(slots=True)
class State:
    """Progress of the load; numbers since the start of the process."""

    mode: str = "rest"
    is_settled: bool = False  # each connection was opened at least once since the mode began
    idle: int = 0  # now open
    slow_senders: int = 0
    slow_readers: int = 0
    opened: int = 0
    dropped: int = 0
    closed_by_broker: int = 0
    failed: int = 0  # could not connect
    cpu_seconds: float = 0.0
    at: float = 0.0  # by the monotonic clock


class _Kind(IntEnum):
    SILENT = 0
    ASKING = 1
    SENDER = 2
    READER = 3
    PASSING = 4


@dataclass(slots=True, eq=False)
class _Slot:
    """The place of one connection, with the socket that it has now."""

    kind: _Kind
    sock: socket.socket | None = None
    is_connected: bool = False
    sent: int = 0


@dataclass(slots=True)
class _Pace:
    """How many times something is due that happens `rate` times a second."""

    rate: float
    owed: float = field(default=0.0)

    def due(self, seconds: float) -> int:
        self.owed += self.rate * seconds
        count = int(self.owed)
        self.owed -= count
        return count


class HostileLoad:
    """Keeps the connections; `tick` is called again and again."""

    def __init__(self, port: int, topic: str, counts: Counts) -> None:
        self.state = State()
        self._target = (LOOPBACK, port)
        self._counts = counts
        self._epoll = select.epoll()
        self._by_descriptor: dict[int, _Slot] = {}
        self._to_open: deque[_Slot] = deque()
        self._paused: deque[tuple[float, _Slot]] = deque()  # with the time of their opening
        self._passing: list[_Slot] = []
        self._sources = itertools.cycle(_SOURCES)
        self._numbers = itertools.count()
        self._small = encode_frame(request(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=0))
        self._large = encode_frame(pull(topic, "Hostile")) * _ANSWERS
        self._slow = encode_frame(send(topic, bytes(_SMALL_BUFFER)))
        self._slots = self._new_slots()
        self._opening = _Pace(_OPENED_PER_SECOND)
        self._dropping = _Pace(counts.dropped_per_second)
        self._walks = {
            _Kind.ASKING: _Pace(len(self._slots[_Kind.ASKING]) / _KEEP_ALIVE_SECONDS),
            _Kind.SENDER: _Pace(len(self._slots[_Kind.SENDER]) / _DRIBBLE_SECONDS),
            _Kind.READER: _Pace(len(self._slots[_Kind.READER]) / _READER_SECONDS),
        }
        self._next = dict.fromkeys(self._walks, 0)

    def _new_slots(self) -> dict[_Kind, list[_Slot]]:
        counts = self._counts
        numbers = {
            _Kind.SILENT: counts.idle // 2,
            _Kind.ASKING: counts.idle - counts.idle // 2,
            _Kind.SENDER: counts.slow_senders,
            _Kind.READER: counts.slow_readers,
        }
        return {kind: [_Slot(kind) for _ in range(number)] for kind, number in numbers.items()}

    # --- modes ---

    def attack(self) -> None:
        """Open all connections."""
        self._to_open = deque(slot for slots in self._slots.values() for slot in slots)

    def stop(self) -> None:
        """Close all connections at once."""
        self._to_open.clear()
        self._paused.clear()
        for slot in list(self._by_descriptor.values()):
            self._close(slot)
        self._passing.clear()

    # --- work ---

    def tick(self, seconds: float) -> None:
        """Do the work of the `seconds` since the last call."""
        now = time.monotonic()
        while self._paused and self._paused[0][0] <= now:
            self._to_open.append(self._paused.popleft()[1])
        for _ in range(min(self._opening.due(seconds), len(self._to_open))):
            self._open(self._to_open.popleft())
        if not self._to_open:
            self.state.is_settled = True
        for slot in self._passing:
            self._close(slot)
        self._passing = [_Slot(_Kind.PASSING) for _ in range(self._dropping.due(seconds))]
        for slot in self._passing:
            self._open(slot)
        self.state.dropped += len(self._passing)
        for kind, pace in self._walks.items():
            slots = self._slots[kind]
            for _ in range(min(pace.due(seconds), len(slots))):
                self._work(slots[self._next[kind]])
                self._next[kind] = (self._next[kind] + 1) % len(slots)

    def wait(self, seconds: float) -> None:
        """Handle what happens on the connections meanwhile."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            for descriptor, events in self._epoll.poll(rest):
                if (slot := self._by_descriptor.get(descriptor)) is not None:
                    self._handle(slot, events)

    def _work(self, slot: _Slot) -> None:
        if not slot.is_connected or slot.sock is None:
            return
        try:
            if slot.kind is _Kind.ASKING:
                slot.sock.send(self._small)
            elif slot.kind is _Kind.SENDER:
                at = slot.sent % len(self._slow)
                slot.sent += slot.sock.send(self._slow[at : at + 1])
            else:
                self._close(slot)
                self._to_open.append(slot)
        except BlockingIOError:
            pass
        except OSError:
            self._ended(slot)

    def _handle(self, slot: _Slot, events: int) -> None:
        assert slot.sock is not None
        if not slot.is_connected:
            if events & (select.EPOLLERR | select.EPOLLHUP):
                self.state.failed += 1
                self._reopen(slot)
            elif events & select.EPOLLOUT:
                self._connected(slot)
            return
        if slot.kind is _Kind.READER:
            self._ended(slot)
            return
        try:
            if slot.sock.recv(_READ_BYTES):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._ended(slot)

    def _connected(self, slot: _Slot) -> None:
        assert slot.sock is not None
        slot.is_connected = True
        self.state.opened += 1
        reads = slot.kind is not _Kind.READER
        self._epoll.modify(slot.sock, _READY if reads else select.EPOLLRDHUP)
        try:
            if slot.kind is _Kind.READER:
                slot.sock.send(self._large)
            elif slot.kind is _Kind.ASKING:
                slot.sock.send(self._small)
            elif slot.kind is _Kind.PASSING and (form := next(self._numbers) % 3):
                slot.sock.send(self._small[: len(self._small) // form])
        except OSError:
            self._ended(slot)

    # --- sockets ---

    def _open(self, slot: _Slot) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        if slot.kind is _Kind.READER:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
        slot.sock, slot.is_connected, slot.sent = sock, False, 0
        sock.bind((next(self._sources), 0))
        self._by_descriptor[sock.fileno()] = slot
        self._epoll.register(sock, select.EPOLLOUT)
        code = sock.connect_ex(self._target)
        if code == 0:
            self._connected(slot)
        elif code != errno.EINPROGRESS:
            self.state.failed += 1
            self._reopen(slot)

    def _ended(self, slot: _Slot) -> None:
        self.state.closed_by_broker += 1
        self._reopen(slot)

    def _reopen(self, slot: _Slot) -> None:
        self._close(slot)
        if slot.kind is _Kind.READER:
            self._paused.append((time.monotonic() + _READER_PAUSE_SECONDS, slot))
        elif slot.kind is not _Kind.PASSING:
            self._to_open.append(slot)

    def _close(self, slot: _Slot) -> None:
        if slot.sock is None:
            return
        del self._by_descriptor[slot.sock.fileno()]
        # Half of the passing ones end in order, all others with a reset.
        if slot.kind is not _Kind.PASSING or next(self._numbers) % 2:
            with suppress(OSError):
                slot.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        slot.sock.close()
        slot.sock, slot.is_connected = None, False

    def count_open(self) -> None:
        """Write the numbers of open connections to the state."""
        is_open = {kind: sum(slot.is_connected for slot in slots) for kind, slots in self._slots.items()}
        self.state.idle = is_open[_Kind.SILENT] + is_open[_Kind.ASKING]
        self.state.slow_senders = is_open[_Kind.SENDER]
        self.state.slow_readers = is_open[_Kind.READER]


def _read_lines(rest: bytearray) -> list[str] | None:
    """Return the complete lines of standard input, or None at its end."""
    try:
        data = os.read(sys.stdin.fileno(), _READ_BYTES)
    except BlockingIOError:
        return []
    if not data:
        return None
    rest += data
    *lines, last = bytes(rest).split(b"\n")
    rest[:] = last
    return [line.decode() for line in lines]


def run(load: HostileLoad) -> None:
    """Obey standard input until its end."""
    descriptor = sys.stdin.fileno()
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_NONBLOCK)
    state, rest = load.state, bytearray()
    last = reported = time.monotonic()
    while (lines := _read_lines(rest)) is not None:
        for line in lines:
            state.mode, state.is_settled = line, False
            load.stop()
            if state.mode == "attack":
                load.attack()
        began = time.monotonic()
        if state.mode == "attack":
            load.tick(began - last)
            load.wait(_TICK_SECONDS)
        else:
            state.is_settled = True
            time.sleep(_TICK_SECONDS)
        last = began
        if began - reported >= _STATE_SECONDS or lines:
            reported = began
            load.count_open()
            state.cpu_seconds, state.at = time.process_time(), began
            print(json.dumps(asdict(state)), flush=True)


if __name__ == "__main__":
    _port, _topic, _counts = sys.argv[1:]
    run(HostileLoad(int(_port), _topic, Counts(**json.loads(_counts))))
