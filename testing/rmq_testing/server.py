"""A harness with its thread: what both faces of a broker for tests share."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

from rmq_client.loop_thread import LoopThread

from .faults import Faults
from .harness import Harness
from .view import BrokerView

T = TypeVar("T")


class Server:
    """A running harness. Its methods block; they may be called from any thread."""

    def __init__(
        self,
        *,
        topics: str | Iterable[str] | Mapping[str, int] = (),
        settings: Mapping[str, object] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        """Prepare a name server and a broker; see `Harness`."""
        self.harness = Harness(topics=topics, settings=settings, folder=folder)
        self._thread: LoopThread | None = None

    def start(self) -> None:
        """Start both. Raises StartError, SettingsError."""
        self._thread = LoopThread("rmq-testing")
        try:
            self.run(self.harness.start())
        except BaseException:
            self._stop_thread()
            raise

    def stop(self) -> None:
        """Stop both."""
        try:
            self.run(self.harness.stop())
        finally:
            self._stop_thread()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop of the harness."""
        if self._thread is None:
            coroutine.close()
            raise RuntimeError("the broker was not started: use `with` or `async with`")
        return self._thread.submit(coroutine)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of the harness, and wait for it. An interrupted wait cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def new_view(self) -> BrokerView:
        """Return the view of a test that begins now."""
        return self.run(BrokerView.of(self.harness))

    def end_test(self) -> None:
        """Cancel the faults of a test, and start a broker that the test has killed."""
        self.harness.faults.clear()
        if not self.harness.is_running:
            self.run(self.harness.restart())

    def _stop_thread(self) -> None:
        if self._thread is not None:
            self._thread.signal_stop()
            self._thread.join()
            self._thread = None


class Face:
    """The members of a broker for tests that do not wait."""

    def __init__(
        self,
        *,
        topics: str | Iterable[str] | Mapping[str, int] = (),
        settings: Mapping[str, object] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        """Prepare a name server and a broker with these topics.

        `topics`: a name, names, or numbers of queues by name. `settings`: the broker's, by Apache's keys.
        `folder`: keeps the files; without it they are in a temporary directory that is removed at the end.
        """
        self._server = Server(topics=topics, settings=settings, folder=folder)
        self._view_of_test: BrokerView | None = None

    @classmethod
    def sharing(cls, server: Server) -> Self:
        """Return the broker of a running server, for a test that begins now."""
        broker = cls()
        broker._server = server
        broker._view_of_test = server.new_view()
        return broker

    @property
    def _harness(self) -> Harness:
        return self._server.harness

    @property
    def _view(self) -> BrokerView:
        if self._view_of_test is None:
            raise RuntimeError("the broker was not started: use `with` or `async with`")
        return self._view_of_test

    @property
    def namesrv_address(self) -> str:
        """The address of the name server, which clients need."""
        return self._harness.namesrv_address

    @property
    def broker_address(self) -> str:
        """The address of the broker."""
        return self._harness.broker_address

    @property
    def faults(self) -> Faults:
        """The faults: order one to see how an application deals with it."""
        return self._harness.faults

    @property
    def is_running(self) -> bool:
        """Whether the broker runs; not after `kill`."""
        return self._harness.is_running

    def now_ms(self) -> int:
        """Return the broker's time in ms since 1970 UTC, with the time that `advance` has let pass."""
        return self._harness.clock.now_ms()
