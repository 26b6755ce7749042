"""A broker for tests without an event loop: the methods of `rmq_testing.BrokerForTests`, which block.

::

    with BrokerForTests(topics=["orders"]) as broker:
        place_order(broker.namesrv_address)
        (message,) = broker.expect("orders")
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from .harness import Harness
from .server import Face
from .view import BrokerView

P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B")


def _blocking(
    part: str, method: Callable[Concatenate[B, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that runs one of `part` on the loop of the harness, and waits for it."""

    @functools.wraps(method)
    def wait(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True  # pytest shows the line of the test
        result: T = self._server.run(method(getattr(self, part), *args, **kwargs))
        return result

    return wait


class BrokerForTests(Face):
    """A name server and a broker in this process; see rmq_testing.BrokerForTests."""

    def __enter__(self) -> Self:
        self._server.start()
        self._view_of_test = self._server.new_view()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    create_topic = _blocking("_harness", Harness.create_topic)
    publish = _blocking("_view", BrokerView.publish)
    messages = _blocking("_view", BrokerView.messages)
    dead_letters = _blocking("_view", BrokerView.dead_letters)
    expect = _blocking("_view", BrokerView.expect)
    expect_dead_letters = _blocking("_view", BrokerView.expect_dead_letters)
    expect_redelivery = _blocking("_view", BrokerView.expect_redelivery)
    expect_nothing = _blocking("_view", BrokerView.expect_nothing)
    consumed = _blocking("_view", BrokerView.consumed)
    advance = _blocking("_harness", Harness.advance)
    kill = _blocking("_harness", Harness.kill)
    restart = _blocking("_harness", Harness.restart)
    cut_connections = _blocking("_harness", Harness.cut_connections)
