"""Apache's Python client for 5.x in a process of its own: the tests' side of `python/main.py`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.support.outcome import Event
from tests.support.running import RunningProgram
from tests.support.toolchain import PYTHON_CLIENT

_CALL_TIMEOUT_SECONDS: Final = 40.0


class Refused(Exception):
    """The client raised an exception; `code` is the proxy's."""

    def __init__(self, error: Event) -> None:
        super().__init__(f"{error['class']} {error['code']}: {error['text']}")
        self.code: int | None = error["code"]


class PythonClients:
    """Clients in one process. Not bound to an event loop."""

    def __init__(self, program: RunningProgram) -> None:
        self._program = program
        self._numbers = count(1)

    async def call(self, method: str, /, **arguments: object) -> Any:
        """Call a method of `Clients` in `main.py` and return its value. Raises Refused, TimeoutError."""
        number = next(self._numbers)
        self._program.write_line(json.dumps({"call": number, "method": method, "arguments": arguments}))
        (answer,) = await self._program.wait_for(f"answer {number}", 1, _CALL_TIMEOUT_SECONDS)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["value"]

    @asynccontextmanager
    async def producer(self, *topics: str, check: str | None = None) -> AsyncIterator[PythonProducer]:
        """A producer; `check` is its answer to transaction checks: commit or rollback."""
        async with self._client("producer", topics=topics, check=check) as name:
            yield PythonProducer(self, name)

    @asynccontextmanager
    async def simple_consumer(
        self, group: str, topic: str, *, wait_s: int = 1, expression: str = "*", sql: bool = False
    ) -> AsyncIterator[SimpleConsumer]:
        """A simple consumer; `wait_s` is how long the proxy holds an empty receive."""
        options = {"group": group, "topic": topic, "wait_s": wait_s, "expression": expression, "sql": sql}
        async with self._client("simple_consumer", **options) as name:
            yield SimpleConsumer(self, name)

    @asynccontextmanager
    async def push_consumer(self, group: str, topic: str, *, refuse: int = 0) -> AsyncIterator[PushConsumer]:
        """A push consumer; its listener refuses the first `refuse` deliveries."""
        options = {"group": group, "topic": topic, "refuse": refuse}
        async with self._client("push_consumer", **options) as name:
            yield PushConsumer(self._program, name)

    async def start_push_consumer(self, group: str, topic: str) -> PushConsumer:
        """A push consumer that runs until the process ends."""
        name = f"push_consumer {next(self._numbers)}"
        await self.call("push_consumer", name=name, group=group, topic=topic)
        return PushConsumer(self._program, name)

    def kill(self) -> None:
        """Kill the process with all its clients."""
        self._program.kill()

    def checked(self, topic: str) -> list[Event]:
        """The transaction checks that the producers of a topic answered so far."""
        return [event for event in self._program.named("checked") if event["topic"] == topic]

    @asynccontextmanager
    async def _client(self, method: str, **options: object) -> AsyncIterator[str]:
        name = f"{method} {next(self._numbers)}"
        await self.call(method, name=name, **options)
        yield name
        await self.call("shut_down", name=name)


class PythonProducer:
    """A running producer."""

    def __init__(self, clients: PythonClients, name: str) -> None:
        self._clients = clients
        self._name = name

    async def send(self, topic: str, body: str, **fields: object) -> Event:
        """Send a message: `tag`, `keys`, `properties`, `message_group`, `delivery_timestamp` (seconds)."""
        message = {"topic": topic, "body": body, **fields}
        receipt: Event = await self._clients.call("send", name=self._name, message=message)
        return receipt

    async def send_in_transaction(self, topic: str, body: str, end: str | None) -> None:
        """Send a half message and end its transaction: commit, rollback, or None to leave it open."""
        message = {"topic": topic, "body": body}
        await self._clients.call("send_in_transaction", name=self._name, message=message, end=end)

    async def recall(self, topic: str, handle: str) -> str:
        """Recall a delayed message; return its message id."""
        message_id: str = await self._clients.call("recall", name=self._name, topic=topic, handle=handle)
        return message_id


class SimpleConsumer:
    """A running simple consumer."""

    def __init__(self, clients: PythonClients, name: str) -> None:
        self._clients = clients
        self._name = name

    async def receive(self, count: int = 32, *, invisible_s: int = 30) -> list[Event]:
        """Receive once, up to `count` messages of one queue."""
        received: list[Event] = await self._clients.call(
            "receive", name=self._name, count=count, invisible_s=invisible_s
        )
        return received

    async def ack(self, message: Mapping[str, Any]) -> None:
        """Acknowledge a message."""
        await self._clients.call("ack", name=self._name, id=message["id"])

    async def change_invisible(self, message: Mapping[str, Any], invisible_s: int) -> None:
        """Make a message visible again `invisible_s` from now."""
        await self._clients.call(
            "change_invisible", name=self._name, id=message["id"], invisible_s=invisible_s
        )


class PushConsumer:
    """A running push consumer."""

    def __init__(self, program: RunningProgram, name: str) -> None:
        self._program = program
        self._name = name

    @property
    def deliveries(self) -> list[Event]:
        """The messages that its listener was given so far."""
        return [event for event in self._program.named("delivered") if event["client"] == self._name]

    @property
    def accepted(self) -> list[str]:
        """The bodies of messages that its listener accepted so far."""
        return [event["body"] for event in self.deliveries if event["accepted"]]


@contextmanager
def python_clients(address: str, home: Path, **environment: str) -> Iterator[PythonClients]:
    """Start the program for the proxy at `address`; its clients write their logs below `home`.

    `environment` are variables of the program.
    """
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(PYTHON_CLIENT), address]
    with RunningProgram(
        command, home / "stderr.log", {**os.environ, "HOME": str(home), **environment}
    ) as program:
        yield PythonClients(program)
