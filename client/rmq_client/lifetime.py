"""Objects that are started and stopped, also by `async with`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Lifetime(ABC):
    """Started where an `async with` begins, and stopped where it ends, also by an exception."""

    @abstractmethod
    async def start(self) -> None:
        """Start the object."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop the object."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
