"""Hostile requests: every code in both serializations, with wrong fields, bodies and frames.

`python -m tests.crash.request_fuzz PORT SEED SECONDS CODES` sends them to a daemon on this machine, from a
process of its own, and prints the number of bursts. CODES are separated by commas.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import random
import struct
import sys
import time
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import rmq_remoting.headers
from rmq_remoting.codes import FLAG_ONEWAY
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.framing import encode_frame
from rmq_remoting.headers.base import Header
from tests.support.ports import LOOPBACK

_NUMBERS: Final = (
    "0", "-1", "1", "16", "2147483647", "-2147483648", "2147483648", "9223372036854775807",
    "-9223372036854775808", "9223372036854775808", "1e9", "0x10", "1.5", " 7 ", "٣", "NaN", "",
)  # fmt: skip
_TEXTS: Final = (
    "Fuzz", "%RETRY%Fuzz", "%DLQ%Fuzz", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "null", "true",
    "../../etc/passwd", "a\x00b", "\x01\x02", "é\u2028\U0001f600", "a||b", "*", "A" * 300, "x" * 10_000,
    "TAG:a", "${jndi:x}", "0 1000 60000 1 0 broker-a 0 7", "{\"a\":1}",
)  # fmt: skip
_SHORT_NAMES: Final = tuple("abcdefghijklmn")
_COMMON_NAMES: Final = ("topic", "queueId", "consumerGroup", "offset", "group", "groupName", "brokerName")
# Members of the bodies that the daemons decode.
_MEMBERS: Final = (
    "clientID", "clientId", "consumerDataSet", "producerDataSet", "groupName", "subscriptionDataSet", "topic",
    "subString", "tagsSet", "codeSet", "subVersion", "expressionType", "mqSet", "brokerName", "queueId",
    "consumerGroup", "acks", "b", "c", "t", "q", "so", "pt", "rq", "topicConfigList", "topicName",
    "readQueueNums", "writeQueueNums", "perm", "attributes", "groupConfigList", "groupRetryPolicy", "next",
    "topicConfigSerializeWrapper", "topicConfigTable", "dataVersion", "counter", "filterServerList",
    "password", "userType", "userStatus", "policies", "entries", "resource", "actions", "decision",
    "sourceIps", "subject", "mode", "popShareQueueNum", "$ref", "@type", "withoutSub",
)  # fmt: skip
_DEEP: Final = 100_000
_COLLIDING: Final = (1 << 61) - 1  # multiples of it have one hash in CPython
_LARGE_BYTES: Final = 2 * 1024 * 1024
_CONNECTIONS: Final = 4
_READ_SECONDS: Final = 0.05


@cache
def field_names() -> tuple[str, ...]:
    """The names of the fields of all headers."""
    for module in pkgutil.iter_modules(rmq_remoting.headers.__path__):
        importlib.import_module(f"rmq_remoting.headers.{module.name}")
    names = {
        field.alias or name for header in _subclasses(Header) for name, field in header.model_fields.items()
    }
    return (*sorted(names), *_SHORT_NAMES)


def _subclasses(kind: type[Header]) -> list[type[Header]]:
    direct = kind.__subclasses__()
    return [*direct, *(below for one in direct for below in _subclasses(one))]


class RequestFuzz:
    """Makes hostile frames; the same seed makes the same ones."""

    def __init__(self, seed: int, codes: Sequence[int]) -> None:
        self._random = random.Random(seed)
        self._codes = codes

    def burst(self) -> bytes:
        """The bytes of some frames, which may end in the middle of one."""
        draw = self._random
        frames = b"".join(self._frame() for _ in range(draw.choice((1, 1, 2, 5, 40))))
        kind = draw.random()
        if kind < 0.1:
            return self._flipped(frames)
        if kind < 0.15:
            return frames[: draw.randrange(len(frames) + 1)]
        if kind < 0.2:
            return self._broken_prefix()
        return frames

    def _frame(self) -> bytes:
        draw = self._random
        code = draw.choice(self._codes) if draw.random() < 0.95 else draw.randrange(-(2**31), 2**31)
        command = RemotingCommand.request(
            code,
            self._fields(),
            self._body(),
            serialization=draw.choice((Serialization.JSON, Serialization.BINARY)),
        )
        command.version = draw.choice((0, 399, 479, -1, 2**15 - 1))
        if draw.random() < 0.1:
            command.flag |= FLAG_ONEWAY
        if draw.random() < 0.05:
            command.remark = draw.choice(_TEXTS)
        try:
            return encode_frame(command)
        except (ValueError, struct.error, UnicodeError):  # lengths and codes that no frame can hold
            return self._broken_prefix()

    def _fields(self) -> dict[str, str]:
        draw, names = self._random, field_names()
        chosen = [name for name in _COMMON_NAMES if draw.random() < 0.6]
        chosen += draw.sample(names, draw.choice((0, 3, 10, 40)))
        fields = {name: self._value() for name in chosen}
        if draw.random() < 0.01:
            fields.update((f"k{number}", "v") for number in range(20_000))
        return fields

    def _value(self) -> str:
        draw = self._random
        return draw.choice(_NUMBERS) if draw.random() < 0.6 else draw.choice(_TEXTS)

    def _body(self) -> bytes:
        draw = self._random
        kind = draw.random()
        if kind < 0.35:
            return b""
        if kind < 0.75:
            return json.dumps(self._json(4), ensure_ascii=draw.random() < 0.5).encode("utf-8", "replace")
        if kind < 0.85:
            return draw.randbytes(draw.choice((1, 7, 100, 5_000)))
        return self._special_body()

    def _special_body(self) -> bytes:
        draw = self._random
        name = draw.choice(_MEMBERS)
        return draw.choice(
            (
                lambda: b"[" * _DEEP,
                lambda: b'{"a":' * _DEEP,
                lambda: b"{" + b",".join(b"%d:1" % (k * _COLLIDING) for k in range(2_000)) + b"}",
                lambda: b'{"x":' + b"9" * 5_000 + b"}",
                lambda: b'{"a":{},"b":[' + b",".join([b'{"$ref":"$.a"}'] * 20_000) + b"]}",
                lambda: b'{"%s":[%s]}' % (name.encode(), b",".join([b"{}"] * 50_000)),
                lambda: b'{"%s":"%s"}' % (name.encode(), b"A" * _LARGE_BYTES),
                lambda: b"\x78\x9c" + draw.randbytes(200),
                lambda: b"{unquoted:1,'single':2,}",
                lambda: bytes(_LARGE_BYTES),
            )
        )()

    def _json(self, depth: int) -> Any:
        draw = self._random
        kind = draw.random()
        if depth == 0 or kind < 0.3:
            return draw.choice((None, True, False, -1, 2**31, 2**63, 1.5, 1e300, *_TEXTS[:12], *_NUMBERS))
        if kind < 0.5:
            return [self._json(depth - 1) for _ in range(draw.randrange(5))]
        return {draw.choice(_MEMBERS): self._json(depth - 1) for _ in range(draw.randrange(8))}

    def _flipped(self, frames: bytes) -> bytes:
        draw = self._random
        damaged = bytearray(frames)
        for _ in range(draw.choice((1, 3, 20))):
            if damaged:
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        return bytes(damaged)

    def _broken_prefix(self) -> bytes:
        draw = self._random
        length = draw.choice((-1, 0, 3, 4, 100, 2**24, 2**31 - 1))
        header = draw.choice((0, 4, 50, 2**24 - 1, 1 << 24, 2 << 24, 0xFFFFFFFF))
        return struct.pack(">iI", length, header) + draw.randbytes(draw.choice((0, 10, 100)))


async def _attack(port: int, fuzz: RequestFuzz, until_time: float) -> int:
    """Send bursts, each over a new connection, of which some are left unread; return their number."""
    bursts = 0
    while time.monotonic() < until_time:
        try:
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:  # the daemon refuses connections for a moment, or has ended: the caller will see
            await asyncio.sleep(_READ_SECONDS)
            continue
        writer.write(fuzz.burst())
        try:
            async with asyncio.timeout(_READ_SECONDS):
                await writer.drain()
                while bursts % 3 and await reader.read(65_536):
                    pass
        except (TimeoutError, ConnectionError):
            pass
        writer.transport.abort()
        bursts += 1
    return bursts


async def _attack_all(port: int, seed: int, seconds: float, codes: Sequence[int]) -> int:
    end = time.monotonic() + seconds
    fuzzes = [RequestFuzz(seed + number, codes) for number in range(_CONNECTIONS)]
    return sum(await asyncio.gather(*(_attack(port, fuzz, end) for fuzz in fuzzes)))


if __name__ == "__main__":
    _port, _seed, _seconds, _codes = sys.argv[1:]
    print(asyncio.run(_attack_all(int(_port), int(_seed), float(_seconds), [*map(int, _codes.split(","))])))
