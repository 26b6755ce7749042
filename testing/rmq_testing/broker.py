"""A broker for tests that run on an event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from .harness import Harness
from .server import Face
from .view import BrokerView

P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B")


def _awaitable(
    part: str, method: Callable[Concatenate[B, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return a method that runs one of `part` on the loop of the harness, and awaits it on the caller's."""

    @functools.wraps(method)
    async def wait(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True  # pytest shows the line of the test
        return await asyncio.wrap_future(self._server.submit(method(getattr(self, part), *args, **kwargs)))

    return wait


class BrokerForTests(Face):
    """A name server and a broker in this process, for one test or many.

    ::

        async with BrokerForTests(topics=["orders"]) as broker:
            await place_order(broker.namesrv_address)
            (message,) = await broker.expect("orders")

    They run in threads of their own: the test may block. `rmq_testing.blocking` has the same class without
    `await`.
    """

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._server.start)
        self._view_of_test = await asyncio.to_thread(self._server.new_view)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._server.stop)

    create_topic = _awaitable("_harness", Harness.create_topic)
    publish = _awaitable("_view", BrokerView.publish)
    messages = _awaitable("_view", BrokerView.messages)
    dead_letters = _awaitable("_view", BrokerView.dead_letters)
    expect = _awaitable("_view", BrokerView.expect)
    expect_dead_letters = _awaitable("_view", BrokerView.expect_dead_letters)
    expect_redelivery = _awaitable("_view", BrokerView.expect_redelivery)
    expect_nothing = _awaitable("_view", BrokerView.expect_nothing)
    consumed = _awaitable("_view", BrokerView.consumed)
    advance = _awaitable("_harness", Harness.advance)
    kill = _awaitable("_harness", Harness.kill)
    restart = _awaitable("_harness", Harness.restart)
    cut_connections = _awaitable("_harness", Harness.cut_connections)
