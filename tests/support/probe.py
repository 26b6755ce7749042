"""Requests to servers as bytes: independent of every client and of this project's protocol code."""

from __future__ import annotations

import asyncio
import json
import struct

_UPDATE_BROKER_CONFIG = 25
_GET_BROKER_CLUSTER_INFO = 106
_CONTROLLER_GET_METADATA_INFO = 1005
_TIMEOUT_SECONDS = 2.0


async def cluster_info(namesrv_address: str) -> str:
    """The body of GET_BROKER_CLUSTER_INFO as text (Apache's is no standard JSON: map keys are bare numbers).

    OSError or TimeoutError if there is no answer at `namesrv_address` ("host:port").
    """
    return (await _ask(namesrv_address, _GET_BROKER_CLUSTER_INFO)).decode()


async def leads(controller_address: str) -> bool:
    """Whether the controller answers and knows a leader of its group."""
    try:
        head, _ = await _ask_whole(controller_address, _CONTROLLER_GET_METADATA_INFO)
    except (OSError, TimeoutError):
        return False
    return bool(json.loads(head).get("extFields", {}).get("controllerLeaderAddress"))


async def has_broker(namesrv_address: str, broker_address: str) -> bool:
    """Whether the name server answers and knows a broker at `broker_address`."""
    try:
        return f'"{broker_address}"' in await cluster_info(namesrv_address)
    except (OSError, TimeoutError):
        return False


async def is_listening(address: str) -> bool:
    """Whether a connection to `address` ("host:port") can be made."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(host, int(port))
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def register_again(broker_address: str) -> None:
    """Set the permission that Apache's broker has anyway, which makes it register at once."""
    await _ask(broker_address, _UPDATE_BROKER_CONFIG, b"brokerPermission=6\n")


async def _ask(address: str, code: int, body: bytes = b"") -> bytes:
    return (await _ask_whole(address, code, body))[1]


async def _ask_whole(address: str, code: int, body: bytes = b"") -> tuple[bytes, bytes]:
    """Header and body of the answer."""
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(_request(code, body))
            (length,) = struct.unpack(">i", await _read(reader, 4))
            frame = await _read(reader, length)
        finally:
            writer.close()
    header_length = struct.unpack_from(">i", frame)[0] & 0xFFFFFF
    return frame[4 : 4 + header_length], frame[4 + header_length :]


def _request(code: int, body: bytes) -> bytes:
    header = json.dumps(
        {
            "code": code,
            "language": "OTHER",
            "version": 479,
            "opaque": 1,
            "flag": 0,
            "serializeTypeCurrentRPC": "JSON",
        }
    ).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


async def _read(reader: asyncio.StreamReader, size: int) -> bytes:
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("the connection was closed during an answer") from error
