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
from .spans import PlainSend, PlainSendLines, Span

log = logging.getLogger(__name__)

# Bounds of a trace message: Apache's limit for the body, and keys that fit into the properties.
_MAX_BODY_CHARACTERS: Final = 128_000
_MAX_KEY_CHARACTERS: Final = 16_000
# Trace messages in flight at the same time.
_PARALLEL_SENDS: Final = 4
_STOP_SECONDS: Final = 5.0

_Traced = Span | PlainSend


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Tracing:
    """Settings of message traces of a producer or a consumer.

    Spans are sent to `topic` in messages of at most `max_spans`. A message leaves when it is full, and the
    last one after at most `linger_seconds`. Above `max_waiting` spans, further ones are dropped: tracing
    never delays a send or a listener.
    """

    topic: str
    max_spans: int
    linger_seconds: float
    max_waiting: int

    __repr__ = short_repr

    def __init__(
        self,
        topic: str = "RMQ_SYS_TRACE_TOPIC",
        max_spans: int = 400,
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

    def __init__(
        self, tracing: Tracing, send: Callable[[Message], Coroutine[Any, Any, object]], group: str = ""
    ) -> None:
        """`group` is the group of plain sends."""
        self.dropped = 0
        self._tracing = tracing
        self._send = send
        self._plain = PlainSendLines(group)
        self._spans: deque[_Traced] = deque()
        self._wake_is_due = False
        self._is_ending = False
        self._loop: asyncio.AbstractEventLoop
        self._wake: asyncio.Event
        self._task: asyncio.Task[None] | None = None

    def append(self, span: _Traced) -> None:
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
        loop, linger_seconds = self._loop, self._tracing.linger_seconds
        flush_at = loop.time() + linger_seconds
        while True:
            is_due = False
            try:
                async with asyncio.timeout_at(flush_at):
                    await self._wake.wait()
            except TimeoutError:
                is_due = True
            is_last = self._is_ending
            is_due = is_due or is_last or loop.time() >= flush_at
            self._wake.clear()
            self._wake_is_due = False
            # A message costs as much as many spans. Until the linger time is over, only full ones leave.
            await self._send_waiting(1 if is_due else self._tracing.max_spans)
            if is_last:
                return
            if is_due:
                flush_at = loop.time() + linger_seconds

    async def _send_waiting(self, least: int) -> None:
        """Send messages as long as at least `least` spans wait."""
        while len(self._spans) >= least:
            batches: list[tuple[Message, int]] = []
            while len(self._spans) >= least and len(batches) < _PARALLEL_SENDS:
                self._add_batch(batches)
            await asyncio.gather(*(self._send_batch(message, count) for message, count in batches))

    def _add_batch(self, batches: list[tuple[Message, int]]) -> None:
        """Add the message of the first spans, and their number; drop spans that cannot be encoded."""
        spans = self._spans
        batch = [spans.popleft() for _ in range(min(self._tracing.max_spans, len(spans)))]
        try:
            lines, words = self._lines(batch)
        except Exception:
            log.exception("spans dropped, one of them cannot be encoded")
            self._drop(len(batch), "not encodable")
            return
        count = _fitting(lines, words)
        if count < len(batch):
            spans.extendleft(reversed(batch[count:]))
            lines, words = lines[:count], words[:count]
        # Traces are looked up by these keys: the ids of the messages, and the messages' own keys.
        keys = " ".join(dict.fromkeys(" ".join(words).split()))
        # As Java encodes text: characters that are no Unicode become question marks.
        body = "".join(lines).encode(errors="replace")
        batches.append((Message(self._tracing.topic, body, keys=keys), count))

    def _lines(self, batch: list[_Traced]) -> tuple[list[str], list[str]]:
        """Return the line of each span, and its keys as one text."""
        plain = [span for span in batch if isinstance(span, tuple)]
        lines, words = self._plain.encode(plain), [send[2] for send in plain]
        if len(plain) < len(batch):
            plain_lines, plain_words = iter(lines), iter(words)
            lines = [next(plain_lines) if isinstance(span, tuple) else span.line() for span in batch]
            words = [next(plain_words) if isinstance(span, tuple) else _words(span) for span in batch]
        return lines, words

    async def _send_batch(self, message: Message, count: int) -> None:
        try:
            await self._send(message)
        except ClientError as error:
            self._drop(count, str(error))
        except asyncio.CancelledError:
            self._drop(count, "not sent in time")
            raise
        except Exception as error:
            log.exception("spans not sent")
            self._drop(count, str(error))

    def _drop_waiting(self, reason: str) -> None:
        self._drop(len(self._spans), reason)
        self._spans.clear()

    def _drop(self, count: int, reason: str) -> None:
        if count and not self.dropped:
            log.warning("spans dropped count=%d cause=%s; further drops are only counted", count, reason)
        self.dropped += count


def _words(span: Span) -> str:
    return f"{span.msg_id} {span.keys}" if span.keys else span.msg_id


def _fitting(lines: list[str], words: list[str]) -> int:
    """Return how many of the first spans fit into a message, at least one."""
    body, keys = sum(map(len, lines)), sum(map(len, words)) + len(words)
    count = len(lines)
    while count > 1 and (body > _MAX_BODY_CHARACTERS or keys > _MAX_KEY_CHARACTERS):
        count -= 1
        body -= len(lines[count])
        keys -= len(words[count]) + 1
    return count
