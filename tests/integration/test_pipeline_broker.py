"""The broker of `make pipeline` is found whichever port it has for gRPC."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from examples.pipeline.brokers import standalone_broker
from rmq_client import Admin
from tests.support.ports import LOOPBACK

_GRPC_PORT = 8081


@pytest.fixture(params=["free", "taken"])
def _grpc_port(request: pytest.FixtureRequest) -> Iterator[None]:
    """Take the usual port for gRPC, or leave it as it is on this machine: free, usually."""
    with socket.socket() as taker:
        if request.param == "taken":
            with suppress(OSError):  # another process has it
                taker.bind((LOOPBACK, _GRPC_PORT))
                taker.listen()
        yield


@pytest.mark.usefixtures("_grpc_port")
async def test_the_name_server_is_read_from_the_ready_file(tmp_path: Path) -> None:
    async with standalone_broker(tmp_path / "store", tmp_path) as broker:
        facts = await broker.serves(60)
        async with Admin(facts["namesrv"]) as admin:
            await admin.create_topic("access-log", queues=1)
        assert "grpc" in facts
