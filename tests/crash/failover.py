"""A group of two brokers whose roles change."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from rmq_remoting.bodies.ha import HARuntimeInfo
from rmq_remoting.codes import RequestCode
from tests.crash.brokers import FaultyBroker
from tests.crash.ledger_load import QUEUES
from tests.support.broker_requests import create_topic, request, succeeded
from tests.support.raw_client import raw_client

MASTER: Final = {"brokerRole": "SYNC_MASTER", "brokerId": "0"}
REPLICA: Final = {"brokerRole": "SLAVE", "brokerId": "1"}
_POLL_SECONDS: Final = 0.02


class Node(FaultyBroker):
    """One broker of the group, in whichever role it is started."""

    def __init__(self, home: Path, namesrv: str, flush_mode: str) -> None:
        super().__init__(home, flush_mode)
        self.namesrv_address = namesrv

    async def start_as(self, role: dict[str, str]) -> None:
        self.settings |= role
        await self.start()

    def log(self) -> bytes:
        """The bytes of the commit log's files."""
        return b"".join(path.read_bytes() for path in self.log_files)


async def followed(master: FaultyBroker, timeout_seconds: float = 30.0) -> None:
    """Wait until a replica has the whole log of a master without load."""
    deadline = time.monotonic() + timeout_seconds
    while all(replica.diff for replica in (await _status(master)).ha_connection_info):
        assert time.monotonic() < deadline, f"no replica follows: {await _status(master)}"
        await asyncio.sleep(_POLL_SECONDS)


async def _status(master: FaultyBroker) -> HARuntimeInfo:
    async with raw_client(master.port) as client:
        answer = succeeded(await client.ask(request(RequestCode.GET_BROKER_HA_STATUS)))
    return HARuntimeInfo.decode(answer.body)


async def create_topics(node: FaultyBroker) -> None:
    async with raw_client(node.port) as client:
        for topic in {topic for topic, _ in QUEUES}:
            succeeded(await client.ask(create_topic(topic, 4)))
