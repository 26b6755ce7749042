"""The CPU time of a gRPC send in our servers, without the load of a JVM.

Sends that were encoded ahead are replayed. One connection has 64 sends of 128 B in flight. Between two sends
only the number of the stream and the ids of message and request change, so the load takes a small part of a
core. The broker's gRPC port, `rmq-proxy` and the broker behind it are measured.

python -m benchmarks.grpc_replay                                     5 windows of 4 s
python -m benchmarks.grpc_replay --against DIR --rounds 7            and another checkout, in turns
RMQ_COMPILE=0 python -m benchmarks.grpc_replay                       our code interpreted

`DIR` is as for `python -m benchmarks --against`.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.ours import our_proxy, our_servers
from benchmarks.report import commit, processor, spread
from rmq_client.admin import Admin
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_remoting.build_form import BUILD_FORM
from rmq_remoting.daemon.http2_frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    grpc_message,
    literal,
)
from tests.support.ports import LOOPBACK, free_port
from tests.support.processes import ServerProcess, cpu_seconds

_TOPIC: Final = "Replay"
_QUEUES: Final = 8
_BODY: Final = b"x" * 128
_IN_FLIGHT: Final = 64
_WARM_UP_SECONDS: Final = 2.0
_WAIT_SECONDS: Final = 10.0

# The head of a frame of HTTP/2: length in two parts, kind, flags, stream.
_HEAD: Final = struct.Struct(">HBBBI")
_INITIAL_WINDOW_SIZE: Final = 4  # the identifier of a setting
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
        changing = literal(b"x-mq-request-id", _REQUEST_ID.format(0).encode())
        # The first send puts fields into the server's dynamic table. The last one gets the lowest index.
        first = b"".join(literal(name.encode(), value.encode(), is_indexed=True) for name, value in fields)
        last = _STATIC_ENTRIES + len(fields)
        indexes = bytes(0x80 | index for index in range(last, _STATIC_ENTRIES, -1))
        message = pb.Message(body=_BODY)
        message.topic.name = topic
        message.system_properties.message_id = _MESSAGE_ID.format(0)
        message.system_properties.message_type = pb.NORMAL
        message.system_properties.born_timestamp.GetCurrentTime()
        message.system_properties.born_host = "replay"
        self.data = grpc_message(rpc.SendMessageRequest(messages=[message]).SerializeToString())
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
        return frame(HEADERS, END_HEADERS, stream, headers) + frame(DATA, END_STREAM, stream, data)


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
        self._socket.sendall(PREFACE + frame(SETTINGS, 0, 0, window) + frame(WINDOW_UPDATE, 0, 0, update))

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
        while len(data) - position >= FRAME_HEAD:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, position)
            end = position + FRAME_HEAD + (high << 8 | low)
            if end > len(data):
                break
            ended += self._handle(kind, flags, stream, data[position + FRAME_HEAD : end])
            position = end
        self._rest = data[position:]
        return ended

    def _handle(self, kind: int, flags: int, stream: int, payload: bytes) -> int:
        """Handle a frame; return 1 if it ends a send."""
        if kind == DATA:
            if _OK not in payload:
                raise Refused(f"a send was refused: {payload!r:.300}")
            self.accepted += 1
        elif kind == HEADERS:
            return 1 if flags & END_STREAM else 0
        elif kind == WINDOW_UPDATE and stream == 0:
            self._window += struct.unpack(">I", payload)[0]
        elif kind in (SETTINGS, PING) and not flags & ACK:
            self._socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
        elif kind == GOAWAY or (kind == RST_STREAM and payload != bytes(4)):
            raise Refused(f"the server ended stream {stream}: {payload!r:.300}")
        return 0


@dataclass(frozen=True, slots=True)
class Window:
    """One measurement; CPU times are those of all threads, in microseconds per send."""

    rate: float
    server_us: float  # of the server with the port
    loop_us: float  # of this: its loop
    behind_us: float  # of the broker behind it; 0 without one
    load_us: float


@dataclass(frozen=True, slots=True)
class Target:
    """A gRPC port, its server, and the broker behind that, if there is one."""

    address: str
    server: ServerProcess
    behind: ServerProcess | None = None

    def cpu_us(self) -> tuple[float, float, float]:
        """Return the CPU times so far, in microseconds: server, its loop, and broker behind it."""
        pid = self.server.pid
        # The first thread of a process runs the loop.
        loop = cpu_seconds(Path(f"/proc/{pid}/task/{pid}/stat"))
        behind = 0.0 if self.behind is None else self.behind.usage().cpu_seconds
        return self.server.usage().cpu_seconds * 1e6, loop * 1e6, behind * 1e6


@asynccontextmanager
async def _target(kind: str, checkout: Path | None) -> AsyncIterator[Target]:
    async with AsyncExitStack() as stack:
        port = free_port()
        grpc = {"grpcServerPort": str(port), "bindAddress": LOOPBACK} if kind == "broker" else {}
        servers = await stack.enter_async_context(our_servers(grpc, checkout))
        async with Admin(servers.namesrv_address) as admin:
            await admin.create_topic(_TOPIC, queues=_QUEUES, attributes={"+message.type": "NORMAL"})
        if kind == "broker":
            yield Target(f"{LOOPBACK}:{port}", servers.broker)
            return
        proxy, address = await stack.enter_async_context(our_proxy(servers.namesrv_address, checkout))
        yield Target(address, proxy, servers.broker)


async def measure(target: Target, seconds: float) -> Window:
    """Warm the servers up, and measure once. Raises Refused, OSError."""
    replay = await asyncio.to_thread(Replay, target.address, _TOPIC)
    try:
        await asyncio.to_thread(replay.run, _WARM_UP_SECONDS)
        before, began = target.cpu_us(), time.monotonic()
        sends, load = await asyncio.to_thread(replay.run, seconds)
        elapsed, after = time.monotonic() - began, target.cpu_us()
    finally:
        replay.close()
    server, loop, behind = ((now - then) / sends for now, then in zip(after, before, strict=True))
    return Window(sends / elapsed, server, loop, behind, load / sends * 1e6)


def _row(name: str, windows: Sequence[Window]) -> str:
    cells = [
        spread([window.rate for window in windows], 0),
        spread([window.server_us for window in windows], 1),
        spread([window.loop_us for window in windows], 1),
        spread([window.behind_us for window in windows], 1),
        spread([window.load_us for window in windows], 1),
    ]
    return f"| {name} | " + " | ".join(cells) + " |"


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
        "| set-up | sends/s | CPU of the server with the port, µs per send | of this: its loop "
        "| CPU of the broker behind it | CPU of the load |\n|---|---|---|---|---|---|"
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
