"""A gRPC consumer for kill tests: `grpc_consumer ADDRESS GROUP TOPIC EVENTS`.

Each event is a line of the file EVENTS: `ready` after the first receive, `received BODY` before, and
`acknowledged BODY` after the proxy has acknowledged a message. The process is killed by the test.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import grpc

from rmq_proxy.protocol import definition_pb2 as pb
from tests.crash.grpc_ledger import RETRY_SECONDS, call_again, channel_to
from tests.support.grpc_client import GrpcClient

_INVISIBLE_SECONDS: Final = 3
_HELD_SECONDS: Final = 1.0
_MOST: Final = 4


class Consumer:
    """One consumer of a group, with its own receives and acknowledgements."""

    def __init__(self, client: GrpcClient, group: str, topic: str, events: Path) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._events = os.open(events, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def run(self) -> None:
        """Consume until the process is killed."""
        await self._receive()
        self._note("ready")
        while True:
            for message in await self._receive():
                self._note(f"received {message.body.decode()}")
                if not await self._acknowledged(message):
                    break  # the broker redelivers this message before those after it

    async def _receive(self) -> list[pb.Message]:
        while True:
            try:
                status, messages = await self._client.receive(
                    self._group,
                    self._topic,
                    count=_MOST,
                    invisible_s=_INVISIBLE_SECONDS,
                    wait_s=_HELD_SECONDS,
                )
            except grpc.aio.AioRpcError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if status.code in (pb.OK, pb.MESSAGE_NOT_FOUND):
                return messages
            await asyncio.sleep(RETRY_SECONDS)

    async def _acknowledged(self, message: pb.Message) -> bool:
        answer = await call_again(
            lambda: self._client.acknowledge(self._group, self._topic, message), give_up=True
        )
        if answer is None or answer.status.code != pb.OK:
            return False
        self._note(f"acknowledged {message.body.decode()}")
        return True

    def _note(self, event: str) -> None:
        os.write(self._events, f"{event}\n".encode())


async def _main(address: str, group: str, topic: str, events: str) -> None:
    async with channel_to(address) as channel:
        client = GrpcClient(channel, f"consumer-{os.getpid()}", "5.0.7")
        await Consumer(client, group, topic, Path(events)).run()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
