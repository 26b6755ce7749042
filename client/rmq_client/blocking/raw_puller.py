"""The blocking raw puller."""

from __future__ import annotations

from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from .. import raw_pulls as _raw_pulls
from .wrapping import BlockingObject, blocking, constructs

T = TypeVar("T")


class RawPuller(BlockingObject[_raw_pulls.RawPuller]):
    """Pulls queues as undecoded bytes; see rmq_client.RawPuller."""

    @constructs(_raw_pulls.RawPuller)
    def __init__(self) -> None:
        """Take the same arguments."""

    pull = blocking(_raw_pulls.RawPuller.pull)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop of the connections, in the background. It may use `pulls`."""
        return self._asyncio.submit(coroutine)

    @property
    def pulls(self) -> _raw_pulls.RawPuller:
        """The asyncio object, for coroutines of `submit`."""
        return self._asyncio
