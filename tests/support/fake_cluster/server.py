"""A listening server with faults to order, the base of name server and brokers in memory."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rmq_remoting.answers import Answer
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.server import RemotingServer
from rmq_remoting.tiers import InlineTier

LOOPBACK: Final = "127.0.0.1"

Processor = Callable[[Connection, RemotingCommand], Answer | asyncio.Future[Answer]]
Processors = dict[RequestCode, Processor]


@dataclass(slots=True)
class Fault:
    """What happens to a request instead of an answer, or before it.

    `delay_seconds` comes first. Then the connection is cut, or the request stays unanswered (`silent`), or it
    is refused (`code`), or it gets the ordinary answer. `after`: the request is processed all the same.
    """

    delay_seconds: float = 0.0
    cut: bool = False
    silent: bool = False
    code: int | None = None
    remark: str = "as ordered by the test"
    after: bool = False


@dataclass(slots=True)
class Seen:
    """A received request."""

    code: int
    request: RemotingCommand
    peer: str


class FakeServer:
    """A listening server with processors by code, and faults before them."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.connections_opened = 0
        self._faults: dict[int, deque[Fault]] = defaultdict(deque)
        self._port = 0
        self._server: RemotingServer | None = None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._port}"

    def processors(self) -> Processors:
        raise NotImplementedError

    def order(self, code: RequestCode, *faults: Fault) -> None:
        """Apply these faults to the next requests with that code, one each."""
        self._faults[code].extend(faults)

    def codes(self) -> list[int]:
        return [seen.code for seen in self.seen]

    def requests(self, code: RequestCode) -> list[RemotingCommand]:
        return [seen.request for seen in self.seen if seen.code == code]

    @property
    def connections(self) -> set[Connection]:
        return set() if self._server is None else self._server.connections

    async def listen(self) -> None:
        """Start listening; after `close`, on the same port again."""
        dispatcher = Dispatcher()
        tier = InlineTier("fake", capacity=100_000, max_wait_ms=60_000)
        for code, processor in self.processors().items():
            dispatcher.register([code], self._faulty(processor), tier)
        self._server = RemotingServer(dispatcher, on_open=self._opened, on_close=self._closed)
        self._port = await self._server.start(LOOPBACK, self._port)

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop(grace_seconds=0.1)
            self._server = None

    def cut_all(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def _opened(self, connection: Connection) -> None:
        self.connections_opened += 1

    def _closed(self, connection: Connection) -> None:
        pass

    def _faulty(self, processor: Processor) -> Processor:
        def process(connection: Connection, request: RemotingCommand) -> Answer | asyncio.Future[Answer]:
            self.seen.append(Seen(request.code, request, connection.peer))
            faults = self._faults[request.code]
            if not faults:
                return processor(connection, request)
            fault = faults.popleft()
            return asyncio.ensure_future(self._meet(fault, processor, connection, request))

        return process

    async def _meet(
        self,
        fault: Fault,
        processor: Processor,
        connection: Connection,
        request: RemotingCommand,
    ) -> Answer:
        if fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault.after:
            processor(connection, request)
        if fault.cut:
            connection.abort()
        if fault.cut or fault.silent:
            return None
        if fault.code is not None:
            return request.response(fault.code, fault.remark)
        answer = processor(connection, request)
        return await answer if isinstance(answer, asyncio.Future) else answer
