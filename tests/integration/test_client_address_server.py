"""Name servers from an address server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_client import Message, NameServerUnreachable, Producer, UsageError
from rmq_client.network.address_server import AddressServer
from rmq_client.network.instance import ClientInstance
from rmq_client.settings import ClientSettings, name_server_list
from tests.support.clusters import running_cluster
from tests.support.ports import LOOPBACK, free_port
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture


class _WebServer:
    """Answers every request with the same text."""

    def __init__(self) -> None:
        self.text = ""
        self.status = "200 OK"
        self.asked = 0
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        body = self.text.encode()
        writer.write(
            f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        writer.close()


@asynccontextmanager
async def _web_server(text: str) -> AsyncIterator[_WebServer]:
    web = _WebServer()
    web.text = text
    server = await asyncio.start_server(web.answer, LOOPBACK, 0)
    web.url = f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}/rocketmq/nsaddr"
    async with server:
        yield web


async def test_name_servers_are_resolved_by_the_address_server(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        _web_server(f"{cluster.address}\n") as web,
        Producer(web.url, group="g") as producer,
    ):
        await producer.send(Message("T", b"x"))
        await producer.send(Message("T", b"y"))
        assert web.asked == 1


async def test_changed_name_servers_are_used() -> None:
    async with _web_server("one:1;two:2") as web:
        instance = await ClientInstance.acquire(web.url, ClientSettings())
        try:
            servers = instance.name_servers
            assert str(servers) == web.url
            await instance.run(servers.look_up())
            assert str(servers) == "one:1;two:2"
            web.text = "three:3"
            await instance.run(servers.look_up())
            assert str(servers) == "three:3"
            web.status = "500 Broken"
            with pytest.raises(NameServerUnreachable, match="500"):
                await instance.run(servers.look_up())
            assert str(servers) == "three:3"
        finally:
            await instance.release()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the list of name servers is empty"),
        ("nowhere", "is not an address"),
        ("http://x/", "is another address server"),
    ],
)
async def test_invalid_address_server_answers_raise(text: str, problem: str) -> None:
    async with _web_server(text) as web:
        with pytest.raises(NameServerUnreachable, match=problem):
            await AddressServer(web.url).addresses()


async def test_an_unreachable_address_server_raises() -> None:
    url = f"http://{LOOPBACK}:{free_port()}/"
    async with Producer(url, group="g") as producer:
        with pytest.raises(NameServerUnreachable, match=f"address server {url} returned no name servers"):
            await producer.send(Message("T", b"x"))


def test_an_address_server_must_be_the_only_address() -> None:
    assert name_server_list("http://somewhere/nsaddr") == ("http://somewhere/nsaddr",)
    with pytest.raises(UsageError, match="must be the only address"):
        name_server_list("http://somewhere/nsaddr;other:9876")
