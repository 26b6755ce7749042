"""Deduplicator: processes each message once, although it may be delivered more than once."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from rmq_remoting.message import MessageExt

from ...checks import Seconds, check_received, check_seconds, refuse
from ...errors import UsageError
from ...tasks import uninterrupted
from ..processing.listener import ConsumeResult, Context, Listener, ListenerKind, inspect_listener
from .batch import Batch
from .keys import DeduplicationKey, checked_key, key_function
from .store import ClaimResult, DeduplicationStore, MemoryDeduplicationStore

log = logging.getLogger(__name__)

# As long as a call of a listener may take (ConsumerTiming.consume_timeout_seconds).
_DEFAULT_LEASE_SECONDS: Final = 900.0
_POLL_SECONDS: Final = 0.05

Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine of the store for a function in a thread."""


class Deduplicator:
    """Skips messages that were processed before.

    ::

        deduplicator = Deduplicator(by="keys")
        consumer = PushConsumer(..., listener=deduplicator.listener(pay))

    A message is *claimed* before it is processed, and *confirmed* afterwards. If processing fails, the claim
    is *released*: the message is not seen, and its redelivery is processed. A duplicate that arrives while
    the first message is in process is refused, and redelivered later.

    Messages are processed twice in three cases: the process ends between processing and confirming; the
    store has forgotten the key; processing takes longer than `lease_seconds`. Work that must never happen
    twice needs the store and the work in one transaction.
    """

    def __init__(
        self,
        store: DeduplicationStore | None = None,
        *,
        by: DeduplicationKey = "id",
        lease_seconds: Seconds = _DEFAULT_LEASE_SECONDS,
    ) -> None:
        """Without a store, the keys are in this process: `MemoryDeduplicationStore()`.

        `by`: what two duplicates have in common; see DeduplicationKey. `lease_seconds`: how long a message
        may be in process before another consumer may process it. Groups that share a store need keys of
        their own, made by a function: each group processes each message. Raises InvalidArgumentError.
        """
        if store is None:
            store = MemoryDeduplicationStore()
        elif isinstance(store, type) or not isinstance(store, DeduplicationStore):
            raise refuse("store", store, "must have the methods of a DeduplicationStore")
        self.store: DeduplicationStore = store
        self._key_of = key_function(by)
        self._lease_seconds = check_seconds("lease_seconds", lease_seconds, above=0)

    # --- for consumers that receive messages themselves ---

    def once(
        self, message: MessageExt, *, wait_seconds: Seconds = 0.0
    ) -> AbstractAsyncContextManager[ClaimResult]:
        """Claim a message for the block, and confirm it at its end.

        ::

            async with deduplicator.once(message) as claim:
                if claim is ClaimResult.NEW:
                    await pay(message)
            if claim is not ClaimResult.BUSY:
                await consumer.ack(message)

        An exception that leaves the block releases the message. If another consumer processes it just now,
        `wait_seconds` bounds the wait for that one; after them the block gets BUSY. Raises what the store
        raises.
        """
        check_received("message", message)
        return self._once(self.key_of(message), check_seconds("wait_seconds", wait_seconds))

    @asynccontextmanager
    async def _once(self, key: str, seconds: float) -> AsyncIterator[ClaimResult]:
        token = _new_token()
        claim = await self._claim_within(key, token, seconds)
        try:
            yield claim
        except BaseException:
            if claim is ClaimResult.NEW:
                await uninterrupted(self._release([key], token))
            raise
        if claim is ClaimResult.NEW:
            await uninterrupted(self._confirm([key], token))

    def key_of(self, message: MessageExt) -> str:
        """Return the key of a message. Raises UsageError for a function that returns no text."""
        return checked_key(self._key_of(check_received("message", message)))

    async def _claim_within(self, key: str, token: str, seconds: float) -> ClaimResult:
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            claim = await self.store.claim(key, token, self._lease_seconds)
            left = deadline - asyncio.get_running_loop().time()
            if claim is not ClaimResult.BUSY or left <= 0:
                return claim
            await asyncio.sleep(min(_POLL_SECONDS, left))

    # --- for listeners ---

    def listener(
        self,
        listener: Listener,
        *,
        none_means: ConsumeResult = ConsumeResult.SUCCESS,
    ) -> DeduplicatedListener:
        """Return a listener that gets only new messages; the others count as consumed.

        Takes what a push consumer takes: functions, coroutine functions, those of `body_listener`.
        A call without any new message does not happen. `none_means`: as that of the push consumer. A
        function needs the store in memory; for another store use a coroutine function, or
        `rmq_client.blocking.Deduplicator`. Raises InvalidArgumentError.
        """
        kind = inspect_listener(listener, none_means=none_means)
        if not kind.is_coroutine and not isinstance(self.store, MemoryDeduplicationStore):
            cure = "must be a coroutine function for a store that waits, or use blocking.Deduplicator"
            raise refuse("listener", listener, cure)
        return deduplicated(self, kind, _finish_now)

    async def _begin(self, messages: list[MessageExt], token: str) -> Batch:
        """Claim the messages of a call. Raises what the store raises; then nothing is claimed."""
        batch = Batch(messages, [self.key_of(message) for message in messages])
        try:
            for key in dict.fromkeys(batch.keys):
                batch.claims[key] = await self.store.claim(key, token, self._lease_seconds)
        except BaseException:
            await _settle(self._release(batch.claimed(), token))
            raise
        return batch

    async def _end(self, batch: Batch, processed: Iterable[str], token: str) -> None:
        """Confirm the processed messages of a call, and release the others."""
        done = set(processed)
        await self._confirm([key for key in batch.claimed() if key in done], token)
        await self._release([key for key in batch.claimed() if key not in done], token)

    async def _confirm(self, keys: list[str], token: str) -> None:
        for key in keys:
            try:
                await self.store.confirm(key, token)
            except Exception:
                # The message is processed. A redelivery would find the claim, and repeat it after its lease.
                log.exception("processed message not confirmed key=%s; a duplicate may be processed", key)

    async def _release(self, keys: list[str], token: str) -> None:
        for key in keys:
            try:
                await self.store.release(key, token)
            except Exception:
                log.exception(
                    "claim not released key=%s; the message is refused for %g s", key, self._lease_seconds
                )


class DeduplicatedListener:
    """A listener that gets only new messages. Made by `Deduplicator.listener`."""

    def __init__(self, deduplicator: Deduplicator, kind: ListenerKind) -> None:
        self.wrapped_listener = kind.function
        self._deduplicator = deduplicator
        self._kind = kind

    def __repr__(self) -> str:
        return f"deduplicated {self.wrapped_listener!r}"

    def __call__(self, messages: list[MessageExt], context: Any) -> Any:
        """Pass new messages to the listener, and return the result for all."""
        raise NotImplementedError

    def _call(self, messages: list[MessageExt], context: Context) -> Any:
        return self._kind.function(*((messages, context) if self._kind.takes_context else (messages,)))

    def _processed(self, batch: Batch, outcome: object, context: Context) -> set[str]:
        checked = None if outcome is None else _checked(outcome)
        return batch.processed(checked, self._kind.none_means, context)


class AsyncDeduplicatedListener(DeduplicatedListener):
    """Runs a coroutine function and the store on the loop of the consumer."""

    async def __call__(self, messages: list[MessageExt], context: Any) -> ConsumeResult:
        """Pass new messages to the listener, and return the result for all."""
        deduplicator, token = self._deduplicator, _new_token()
        batch = await deduplicator._begin(messages, token)
        processed: set[str] = set()
        try:
            new = batch.new_messages()
            if new:
                processed = self._processed(batch, await self._call(new, context), context)
        finally:
            await uninterrupted(deduplicator._end(batch, processed, token))
        return batch.result(processed, context)


class SyncDeduplicatedListener(DeduplicatedListener):
    """Runs a function in its thread, and the store by `run`."""

    def __init__(self, deduplicator: Deduplicator, kind: ListenerKind, run: Run) -> None:
        super().__init__(deduplicator, kind)
        self._run = run

    def __call__(self, messages: list[MessageExt], context: Any) -> ConsumeResult:
        """Pass new messages to the listener, and return the result for all."""
        deduplicator, token = self._deduplicator, _new_token()
        batch: Batch = self._run(deduplicator._begin(messages, token))
        processed: set[str] = set()
        try:
            new = batch.new_messages()
            if new:
                processed = self._processed(batch, self._call(new, context), context)
        finally:
            self._run(deduplicator._end(batch, processed, token))
        return batch.result(processed, context)


def deduplicated(deduplicator: Deduplicator, kind: ListenerKind, run: Run) -> DeduplicatedListener:
    """Return the listener for a kind; `run` runs the store for a function in a thread."""
    if kind.is_coroutine:
        return AsyncDeduplicatedListener(deduplicator, kind)
    return SyncDeduplicatedListener(deduplicator, kind, run)


async def _settle(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end: in a task on a loop, directly in a thread without one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        await work
    else:
        await uninterrupted(work)


def _new_token() -> str:
    return uuid.uuid4().hex


def _checked(outcome: object) -> ConsumeResult:
    if isinstance(outcome, ConsumeResult):
        return outcome
    raise UsageError(f"the listener must return None or a ConsumeResult, not {outcome!r}")


def _finish_now(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits for nothing, without a loop."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise UsageError("the store of a deduplicated function has to answer without waiting")
