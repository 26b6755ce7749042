"""Sends spans to the trace topic: in batches, and dropped rather than waited for.

Source of the format: Apache RocketMQ 5.3.3, AsyncTraceDispatcher.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from rmq_remoting.message import Message

from ..checks import Seconds, check_int, check_seconds, set_fields, short_repr
from ..errors import ClientError
from ..names import check_topic
from .spans import Span

log = logging.getLogger(__name__)

# Bounds of a trace message: Apache's limit for the body, and keys that fit into the properties.
_MAX_BODY_CHARACTERS: Final = 128_000
_MAX_KEY_CHARACTERS: Final = 16_000
# Trace messages in flight at the same time.
_PARALLEL_SENDS: Final = 4
_STOP_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Tracing:
    """Settings of message traces of a producer or a consumer.

    Spans are sent to `topic` in messages of at most `max_spans`, after at most `linger_seconds`. Above
    `max_waiting` spans, further ones are dropped: tracing never delays a send or a listener.
    """

    topic: str
    max_spans: int
    linger_seconds: float
    max_waiting: int

    __repr__ = short_repr

    def __init__(
        self,
        topic: str = "RMQ_SYS_TRACE_TOPIC",
        max_spans: int = 100,
        linger_seconds: Seconds = 1.0,
        max_waiting: int = 10_000,
    ) -> None:
        """Raises InvalidArgumentError."""
        check_topic(topic)
        set_fields(
            self,
            topic=topic,
            max_spans=check_int("max_spans", max_spans, least=1),
            linger_seconds=check_seconds("linger_seconds", linger_seconds, above=0),
            max_waiting=check_int("max_waiting", max_waiting, least=1),
        )


class TraceDispatcher:
    """Sends spans in the background. `append` may be called from any thread, the rest on the loop of `start`.

    `dropped` counts the dropped spans.
    """

    def __init__(self, tracing: Tracing, send: Callable[[Message], Coroutine[Any, Any, object]]) -> None:
        self.dropped = 0
        self._tracing = tracing
        self._send = send
        self._spans: deque[Span] = deque()
        self._wake_is_due = False
        self._is_ending = False
        self._loop: asyncio.AbstractEventLoop
        self._wake: asyncio.Event
        self._task: asyncio.Task[None] | None = None

    def append(self, span: Span) -> None:
        """Add a span, or drop it."""
        spans = self._spans
        if len(spans) >= self._tracing.max_waiting:
            self._drop(1, "too many spans wait")
            return
        spans.append(span)
        if len(spans) >= self._tracing.max_spans and not self._wake_is_due:
            self._wake_is_due = True
            with suppress(RuntimeError):  # the loop has ended, so nothing is sent any more
                self._loop.call_soon_threadsafe(self._wake.set)

    def start(self) -> None:
        """Start sending."""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._keep_sending(), name="rmq traces")

    async def stop(self) -> None:
        """Send the remaining spans within a bounded time, and stop."""
        task, self._task = self._task, None
        if task is None:
            return
        self._is_ending = True
        self._wake.set()
        done, _ = await asyncio.wait([task], timeout=_STOP_SECONDS)
        if not done:
            task.cancel()
            await asyncio.wait([task])
        self._drop_waiting("not sent in time")

    async def _keep_sending(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._tracing.linger_seconds):
                    await self._wake.wait()
            is_last = self._is_ending
            self._wake.clear()
            self._wake_is_due = False
            try:
                await self._send_all()
            except Exception:
                log.exception("spans dropped, one of them cannot be encoded")
                self._drop_waiting("not encodable")
            if is_last:
                return

    async def _send_all(self) -> None:
        while self._spans:
            batches = [batch for _ in range(_PARALLEL_SENDS) if (batch := self._next_batch())]
            await asyncio.gather(*map(self._send_batch, batches))

    def _next_batch(self) -> list[tuple[str, Span]]:
        spans, body, keys = self._spans, 0, 0
        batch: list[tuple[str, Span]] = []
        for _ in range(min(self._tracing.max_spans, len(spans))):
            span = spans[0]
            line = span.line()
            body += len(line)
            keys += len(span.msg_id) + len(span.keys or "") + 2
            if batch and (body > _MAX_BODY_CHARACTERS or keys > _MAX_KEY_CHARACTERS):
                break
            batch.append((line, spans.popleft()))
        return batch

    async def _send_batch(self, batch: list[tuple[str, Span]]) -> None:
        try:
            await self._send(self._message(batch))
        except ClientError as error:
            self._drop(len(batch), str(error))
        except asyncio.CancelledError:
            self._drop(len(batch), "not sent in time")
            raise
        except Exception as error:
            log.exception("spans not sent")
            self._drop(len(batch), str(error))

    def _message(self, batch: list[tuple[str, Span]]) -> Message:
        # Traces are looked up by these keys: the ids of the messages, and the messages' own keys.
        words = " ".join([f"{span.msg_id} {span.keys}" if span.keys else span.msg_id for _, span in batch])
        # As Java encodes text: characters that are no Unicode become question marks.
        body = "".join(line for line, _ in batch).encode(errors="replace")
        return Message(self._tracing.topic, body, keys=" ".join(dict.fromkeys(words.split())))

    def _drop_waiting(self, reason: str) -> None:
        self._drop(len(self._spans), reason)
        self._spans.clear()

    def _drop(self, count: int, reason: str) -> None:
        if count and not self.dropped:
            log.warning("spans dropped count=%d cause=%s; further drops are only counted", count, reason)
        self.dropped += count
