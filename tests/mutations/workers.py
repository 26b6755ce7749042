"""Threads that run tests at the same time, each in a checkout of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self, TypeVar

from tests.mutations.checkout import Checkout, extract

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """A context with a number of checkouts of a commit, below a folder."""

    def __init__(self, commit: str, folder: Path, number: int) -> None:
        self._stop = threading.Event()
        self._idle: SimpleQueue[Checkout] = SimpleQueue()
        for worker in range(number):
            checkout = Checkout(folder / str(worker), self._stop)
            extract(commit, checkout.root)
            self._idle.put(checkout)
        self.root = checkout.root
        self._executor = ThreadPoolExecutor(number)

    def map(
        self, function: Callable[[Checkout, Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[Item, Result]]:
        """Yield each item with the result of the function, in the order in which they end."""

        def call(item: Item) -> Result:
            checkout = self._idle.get()
            try:
                return function(checkout, item)
            finally:
                self._idle.put(checkout)

        calls = {self._executor.submit(call, item): item for item in items}
        for future in as_completed(calls):
            yield calls[future], future.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._executor.shutdown(cancel_futures=True)
