"""The blocking deduplicator."""

from __future__ import annotations

from contextlib import AbstractContextManager

from rmq_remoting.message import MessageExt

from ..checks import Seconds
from ..consumer.deduplication import deduplicator as _deduplicator
from ..consumer.deduplication.store import ClaimResult, DeduplicationStore
from ..consumer.processing.listener import ConsumeResult, Listener, inspect_listener
from .background import run
from .wrapping import blocking_context, constructs


class Deduplicator:
    """Skips messages that were processed before; see rmq_client.Deduplicator.

    The store runs on the background loop, also for listeners that are functions.
    """

    _asyncio: _deduplicator.Deduplicator

    @constructs(_deduplicator.Deduplicator)
    def __init__(self) -> None:
        """Take the same arguments."""

    @property
    def store(self) -> DeduplicationStore:
        """The store of the keys."""
        return self._asyncio.store

    def key_of(self, message: MessageExt) -> str:
        """Return the key of a message. Raises UsageError for a function that returns no text."""
        return self._asyncio.key_of(message)

    def listener(
        self, listener: Listener, *, none_means: ConsumeResult = ConsumeResult.SUCCESS
    ) -> _deduplicator.DeduplicatedListener:
        """Return a listener that gets only new messages; see rmq_client.Deduplicator.listener."""
        kind = inspect_listener(listener, none_means=none_means)
        return _deduplicator.deduplicated(self._asyncio, kind, run)

    def once(
        self, message: MessageExt, *, wait_seconds: Seconds = 0.0
    ) -> AbstractContextManager[ClaimResult]:
        """Claim a message for the block of `with`, and confirm it at its end, as rmq_client.Deduplicator."""
        return blocking_context(self._asyncio.once(message, wait_seconds=wait_seconds))
