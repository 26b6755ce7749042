"""A load that is cheaper than a broker: it replays encoded requests, and reads two fields of each answer.

python -m benchmarks.frame_replay FRAMES SECONDS CONNECTIONS PORT [PORT ...]

FRAMES is a file with request frames, one after the other. Each connection sends all of them in one write, and
sends them again when all are answered. The program prints the answers of each port and its own CPU time, as
JSON. It imports nothing but the standard library, to be ready at once.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

_LENGTH: Final = struct.Struct(">i")
_PREFIX: Final = 4
# The code of an answer with a binary header: behind the lengths of frame and header.
_CODE: Final = slice(8, 10)
_SUCCESS: Final = b"\0\0"
_READ_BYTES: Final = 256 * 1024
_POLL_SECONDS: Final = 0.1


class Refused(Exception):
    """An answer other than SUCCESS, or the end of a connection."""


class _Replay:
    """One connection."""

    def __init__(self, port: int, frames: bytes, count: int) -> None:
        self.port = port
        self.answers = 0
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = frames
        self._count = count
        self._missing = 0
        self._rest = b""

    def send(self) -> None:
        self._missing = self._count
        self.socket.sendall(self._frames)

    def read(self) -> bool:
        """Read answers; return whether all are there. Raises Refused."""
        data = self.socket.recv(_READ_BYTES)
        if not data:
            raise Refused("the broker has closed a connection")
        data = self._rest + data if self._rest else data
        position, size, found = 0, len(data), 0
        while size - position >= _PREFIX:
            end = position + _PREFIX + _LENGTH.unpack_from(data, position)[0]
            if end > size:
                break
            if data[position + _CODE.start : position + _CODE.stop] != _SUCCESS:
                raise Refused(f"a request was refused: {data[position:end]!r:.300}")
            found += 1
            position = end
        self._rest = data[position:]
        self.answers += found
        self._missing -= found
        return self._missing == 0


def _count_frames(frames: bytes) -> int:
    position = count = 0
    while position < len(frames):
        position += _PREFIX + _LENGTH.unpack_from(frames, position)[0]
        count += 1
    return count


def replay(frames: bytes, seconds: float, connections: int, ports: list[int]) -> dict[str, object]:
    """Replay for a while, over this number of connections to each port. Raises Refused, OSError."""
    count = _count_frames(frames)
    with ExitStack() as stack:
        replays = [_Replay(port, frames, count) for port in ports for _ in range(connections)]
        selector = stack.enter_context(selectors.DefaultSelector())
        for each in replays:
            stack.enter_context(each.socket)
            selector.register(each.socket, selectors.EVENT_READ, each)
        began, cpu_began = time.monotonic(), time.process_time()
        for each in replays:
            each.send()
        while time.monotonic() < began + seconds:
            for key, _ in selector.select(_POLL_SECONDS):
                if key.data.read():
                    key.data.send()
        elapsed, cpu = time.monotonic() - began, time.process_time() - cpu_began
    answers = [sum(each.answers for each in replays if each.port == port) for port in ports]
    return {"seconds": elapsed, "cpu_seconds": cpu, "answers": answers}


def main() -> int:
    file, seconds, connections, *ports = sys.argv[1:]
    try:
        result = replay(Path(file).read_bytes(), float(seconds), int(connections), list(map(int, ports)))
    except (Refused, OSError) as error:
        print(f"frame_replay: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
