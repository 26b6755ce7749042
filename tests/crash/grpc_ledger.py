"""Producers that send through gRPC and keep a ledger, and the checks of what consumers got.

Messages of a message group are numbered. A producer of a message group repeats a send until it succeeds, so
that a number may be stored twice, but none is missing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc

from rmq_proxy.protocol import definition_pb2 as pb
from tests.support.grpc_client import GrpcClient, message

RETRY_SECONDS: Final = 0.1
_CALL_SECONDS: Final = 5.0
# gRPC waits for up to two minutes before it connects again.
_RECONNECT: Final = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 500),
)
_Answer = TypeVar("_Answer")


@asynccontextmanager
async def channel_to(address: str) -> AsyncIterator[Any]:
    """A channel that connects again soon after its server was killed."""
    async with grpc.aio.insecure_channel(address, options=_RECONNECT) as channel:
        yield channel


async def call_again(call: Callable[[], Awaitable[_Answer]], *, give_up: bool = False) -> _Answer | None:
    """Call until there is an answer; with `give_up` at most once. None: there was no answer."""
    while True:
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                return await call()
        except (grpc.aio.AioRpcError, TimeoutError):
            if give_up:
                return None
            await asyncio.sleep(RETRY_SECONDS)


class GrpcLedger:
    """Bodies of accepted messages, and of those that may be stored more than once."""

    def __init__(self, client: GrpcClient) -> None:
        self._client = client
        self.accepted: set[str] = set()
        self.repeated: set[str] = set()

    async def produce(self, topic: str, producer: str) -> None:
        """Send different messages until cancelled; one without an answer is given up."""
        for number in itertools.count():
            body = f"{producer}-{number}"
            answer = await call_again(lambda: self._client.send(message(topic, body.encode())), give_up=True)  # noqa: B023
            if answer is None or answer.status.code != pb.OK:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.accepted.add(body)

    async def produce_in_order(self, topic: str, message_group: str) -> None:
        """Send the numbers of a message group until cancelled, each until it is accepted."""
        for number in itertools.count():
            body = f"{message_group}-{number}"
            while True:
                each = message(topic, body.encode(), message_group=message_group)
                answer = await call_again(lambda: self._client.send(each), give_up=True)  # noqa: B023
                if answer is not None and answer.status.code == pb.OK:
                    break
                self.repeated.add(body)
                await asyncio.sleep(RETRY_SECONDS)
            self.accepted.add(body)


def events(file: Path) -> list[tuple[str, str]]:
    """Return the events of a consumer's processes so far: what happened, and the body."""
    if not file.exists():
        return []
    words = (line.partition(" ") for line in file.read_text().splitlines())
    return [(what, body) for what, _, body in words]


def check_nothing_is_lost(ledger: GrpcLedger, seen: list[tuple[str, str]], prefix: str) -> None:
    """Every accepted message was received, and none again after its acknowledgement."""
    received = {body for what, body in seen if what == "received"}
    missing = {body for body in ledger.accepted if body.startswith(prefix)} - received
    assert not missing, f"{len(missing)} accepted messages are lost: {sorted(missing)[:10]}"
    done: Counter[str] = Counter()
    for what, body in seen:
        if what == "received":
            copies = 2 if body in ledger.repeated else 1
            assert body in ledger.repeated or done[body] < copies, f"{body} was redelivered after its ack"
        elif what == "acknowledged":
            done[body] += 1


def check_order(seen: list[tuple[str, str]]) -> None:
    """Each number of a message group is received after all before it, and none after a later one."""
    last: dict[str, int] = {}
    for what, body in seen:
        if what != "received":
            continue
        group, _, text = body.rpartition("-")
        before, number = last.get(group, -1), int(text)
        assert number <= before + 1, f"{body} overtook {group}-{before + 1}"
        last[group] = max(before, number)
    _check_no_step_back(seen)


def _check_no_step_back(seen: list[tuple[str, str]]) -> None:
    """No message comes after a later one of its message group was acknowledged."""
    acknowledged: dict[str, int] = {}
    for what, body in seen:
        group, _, text = body.rpartition("-")
        if what == "acknowledged":
            acknowledged[group] = max(acknowledged.get(group, -1), int(text))
        elif what == "received":
            assert int(text) >= acknowledged.get(group, -1), f"{body} came after a later one was acknowledged"
