"""The CPU time of a gRPC send in our servers, without the load of a JVM.

Sends that were encoded ahead are replayed. One connection has 64 sends of 128 B in flight. Between two sends
only the number of the stream and the ids of message and request change, so the load takes a small part of a
core. The broker's gRPC port, `rmq-proxy` and the broker behind it are measured.

python -m benchmarks.grpc_replay                                     5 windows of 4 s
python -m benchmarks.grpc_replay --against DIR --rounds 7            and another checkout, in turns
PYTHONPATH=build/compiled python -m benchmarks.grpc_replay           our code compiled

`DIR` is as for `python -m benchmarks --against`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import struct
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.ours import our_proxy, our_servers
from benchmarks.report import commit, processor
from rmq_client.admin import Admin
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_remoting.build_form import BUILD_FORM
from tests.support.ports import LOOPBACK, free_port
from tests.support.processes import ServerProcess

_TOPIC: Final = "Replay"
_QUEUES: Final = 8
_BODY: Final = b"x" * 128
_IN_FLIGHT: Final = 64
_WARM_UP_SECONDS: Final = 2.0
_WAIT_SECONDS: Final = 10.0

# HTTP/2 (RFC 9113): frame types, flags, and the identifier of a setting.
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 0x1, 0x1, 0x4
_INITIAL_WINDOW_SIZE: Final = 4
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME: Final = struct.Struct(">HBBBI")
_FRAME_BYTES: Final = 9
_LARGE_WINDOW: Final = 1 << 30
_FIRST_WINDOW: Final = 65_535
# HPACK (RFC 7541): `:method: POST` and `:scheme: http` of the static table, and its length.
_STATIC_FIELDS: Final = b"\x83\x86"
_STATIC_ENTRIES: Final = 61
# The status of an answer: the field `code` with the value OK (20000).
_OK: Final = b"\x08\xa0\x9c\x01"
_MESSAGE_ID: Final = "01{:032X}"
_REQUEST_ID: Final = "{:036d}"


class Refused(Exception):
    """A send that did not succeed, or the end of the connection."""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload)
    return _FRAME.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def _text(value: str) -> bytes:
    """Return a string of HPACK, without Huffman's code. It has fewer than 127 bytes."""
    data = value.encode()
    return bytes((len(data),)) + data


class _Send:
    """A send whose changing parts are replaced in its bytes."""

    def __init__(self, address: str, topic: str) -> None:
        fields = [
            (":path", "/apache.rocketmq.v2.MessagingService/SendMessage"),
            (":authority", address),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-java-netty/1.50.0"),
            ("grpc-accept-encoding", "gzip"),
            ("x-mq-language", "JAVA"),
            ("x-mq-protocol", "v2"),
            ("x-mq-client-version", "5.2.0"),
            ("x-mq-client-id", "replay@1@0@1"),
        ]
        changing = b"\x00" + _text("x-mq-request-id") + _text(_REQUEST_ID.format(0))
        # The first send puts fields into the server's dynamic table. The last one gets the lowest index.
        first = b"".join(b"\x40" + _text(name) + _text(value) for name, value in fields)
        last = _STATIC_ENTRIES + len(fields)
        indexes = bytes(0x80 | index for index in range(last, _STATIC_ENTRIES, -1))
        message = pb.Message(body=_BODY)
        message.topic.name = topic
        message.system_properties.message_id = _MESSAGE_ID.format(0)
        message.system_properties.message_type = pb.NORMAL
        message.system_properties.born_timestamp.GetCurrentTime()
        message.system_properties.born_host = "replay"
        request = rpc.SendMessageRequest(messages=[message]).SerializeToString()
        self.data = b"\x00" + struct.pack(">I", len(request)) + request
        self._first = _STATIC_FIELDS + first + changing
        self._later = _STATIC_FIELDS + indexes + changing
        self._number = 0

    def next(self) -> bytes:
        """Return the frames of the next send."""
        number = self._number
        headers = self._later if number else self._first
        self._number = number + 1
        stream = 2 * number + 1
        headers = headers.replace(_REQUEST_ID.format(0).encode(), _REQUEST_ID.format(number).encode())
        data = self.data.replace(_MESSAGE_ID.format(0).encode(), _MESSAGE_ID.format(number).encode())
        return _frame(_HEADERS, _END_HEADERS, stream, headers) + _frame(_DATA, _END_STREAM, stream, data)


class Replay:
    """A connection that repeats sends. It blocks its thread."""

    def __init__(self, address: str, topic: str, in_flight: int = _IN_FLIGHT) -> None:
        host, _, port = address.rpartition(":")
        self.accepted = 0
        self._send = _Send(address, topic)
        self._in_flight = in_flight
        self._window = _FIRST_WINDOW
        self._rest = b""
        self._socket = socket.create_connection((host, int(port)), timeout=_WAIT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        window = struct.pack(">HI", _INITIAL_WINDOW_SIZE, _LARGE_WINDOW)
        update = struct.pack(">I", _LARGE_WINDOW)
        self._socket.sendall(
            _PREFACE + _frame(_SETTINGS, 0, 0, window) + _frame(_WINDOW_UPDATE, 0, 0, update)
        )

    def run(self, seconds: float) -> tuple[int, float]:
        """Send for a while, and wait for all answers; return the sends, and the CPU time of this thread.

        Raises Refused, OSError.
        """
        ends_at, cpu_began, before = time.monotonic() + seconds, time.thread_time(), self.accepted
        wanted, waiting = self._in_flight, 0
        while wanted or waiting:
            size = len(self._send.data)
            number = min(wanted, self._window // size)
            if number:
                self._socket.sendall(b"".join([self._send.next() for _ in range(number)]))
                self._window -= number * size
                wanted -= number
                waiting += number
            answered = self._read()
            waiting -= answered
            wanted = wanted + answered if time.monotonic() < ends_at else 0
        return self.accepted - before, time.thread_time() - cpu_began

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _read(self) -> int:
        """Read frames, and return the number of sends that they end."""
        data = self._socket.recv(256 * 1024)
        if not data:
            raise Refused("the server has closed the connection")
        data = self._rest + data
        position, ended = 0, 0
        while len(data) - position >= _FRAME_BYTES:
            high, low, kind, flags, stream = _FRAME.unpack_from(data, position)
            end = position + _FRAME_BYTES + (high << 8 | low)
            if end > len(data):
                break
            ended += self._handle(kind, flags, stream, data[position + _FRAME_BYTES : end])
            position = end
        self._rest = data[position:]
        return ended

    def _handle(self, kind: int, flags: int, stream: int, payload: bytes) -> int:
        """Handle a frame; return 1 if it ends a send."""
        if kind == _DATA:
            if _OK not in payload:
                raise Refused(f"a send was refused: {payload!r:.300}")
            self.accepted += 1
        elif kind == _HEADERS:
            return 1 if flags & _END_STREAM else 0
        elif kind == _WINDOW_UPDATE and stream == 0:
            self._window += struct.unpack(">I", payload)[0]
        elif kind in (_SETTINGS, _PING) and not flags & _ACK:
            self._socket.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _GOAWAY or (kind == _RST_STREAM and payload != bytes(4)):
            raise Refused(f"the server ended stream {stream}: {payload!r:.300}")
        return 0


@dataclass(frozen=True, slots=True)
class Window:
    """One measurement; CPU times are those of all threads, in microseconds per send."""

    rate: float
    servers_us: tuple[float, ...]
    loop_us: float  # of the first server's loop
    load_us: float


@dataclass(frozen=True, slots=True)
class Target:
    """A gRPC port, and the servers whose CPU time is counted."""

    name: str
    address: str
    servers: tuple[ServerProcess, ...]


@asynccontextmanager
async def _target(kind: str, checkout: Path | None) -> AsyncIterator[Target]:
    async with AsyncExitStack() as stack:
        port = free_port()
        grpc = {"grpcServerPort": str(port), "bindAddress": LOOPBACK} if kind == "broker" else {}
        servers = await stack.enter_async_context(our_servers(grpc, checkout))
        async with Admin(servers.namesrv_address) as admin:
            await admin.create_topic(_TOPIC, queues=_QUEUES, attributes={"+message.type": "NORMAL"})
        if kind == "broker":
            yield Target("broker", f"{LOOPBACK}:{port}", (servers.broker,))
            return
        proxy, address = await stack.enter_async_context(our_proxy(servers.namesrv_address, checkout))
        yield Target("proxy", address, (proxy, servers.broker))


async def measure(target: Target, seconds: float) -> Window:
    """Warm the servers up, and measure once. Raises Refused, OSError."""
    replay = await asyncio.to_thread(Replay, target.address, _TOPIC)
    try:
        await asyncio.to_thread(replay.run, _WARM_UP_SECONDS)
        before = [server.usage().cpu_seconds for server in target.servers]
        loop_before = _thread_seconds(target.servers[0].pid)
        began = time.monotonic()
        sends, load = await asyncio.to_thread(replay.run, seconds)
        elapsed = time.monotonic() - began
        after = [server.usage().cpu_seconds for server in target.servers]
        loop_after = _thread_seconds(target.servers[0].pid)
    finally:
        replay.close()
    per_send = [(now - then) / sends * 1e6 for now, then in zip(after, before, strict=True)]
    return Window(
        sends / elapsed, tuple(per_send), (loop_after - loop_before) / sends * 1e6, load / sends * 1e6
    )


def _thread_seconds(pid: int) -> float:
    """Return the CPU time of a process's first thread, which runs the loop (Linux)."""
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _row(name: str, windows: Sequence[Window]) -> str:
    cells = [_spread([window.rate for window in windows], 0)]
    cells += [
        _spread(list(values), 1) for values in zip(*(window.servers_us for window in windows), strict=True)
    ][:2]
    cells += [""] * (3 - len(cells))
    cells += [
        _spread([window.loop_us for window in windows], 1),
        _spread([window.load_us for window in windows], 1),
    ]
    return f"| {name} | " + " | ".join(cells) + " |"


def _spread(values: list[float], digits: int) -> str:
    lowest, highest = min(values), max(values)
    return f"{statistics.median(values):,.{digits}f} ({lowest:,.{digits}f}–{highest:,.{digits}f})"


async def _run(kinds: Sequence[str], rounds: int, seconds: float, against: Path | None) -> str:
    windows: dict[str, list[Window]] = {}
    sides: list[tuple[str, Path | None]] = [("", None)]
    if against is not None:
        sides.append((f", {against.name}", against))
    for kind in kinds:
        for number in range(rounds):
            for suffix, checkout in sides if number % 2 == 0 else reversed(sides):
                async with _target(kind, checkout) as target:
                    window = await measure(target, seconds)
                name = ("the broker's port" if kind == "broker" else "`rmq-proxy`") + suffix
                print(f"{name}: {window}", flush=True)
                windows.setdefault(name, []).append(window)
    head = (
        "| set-up | sends/s | CPU of the server with the port, µs per send | CPU of the broker behind it "
        "| of the first server: its loop | CPU of the load |\n|---|---|---|---|---|---|"
    )
    return "\n".join([head, *(_row(name, measured) for name, measured in windows.items())])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="windows of each set-up (5)")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a window (4)")
    parser.add_argument("--only", choices=["broker", "proxy"], help="one set-up")
    parser.add_argument("--against", type=Path, help="another checkout, in turns with this one")
    arguments = parser.parse_args()
    kinds = [arguments.only] if arguments.only else ["broker", "proxy"]
    table = asyncio.run(_run(kinds, arguments.rounds, arguments.seconds, arguments.against))
    print(f"\ncommit {commit()}, {processor()}, {BUILD_FORM}, median (range)\n\n{table}")


if __name__ == "__main__":
    main()
