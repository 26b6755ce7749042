"""The signatures of the sends that were served within the last seconds.

No send is served twice: its signature is remembered for as long as its time is inside the window, and a send
from outside the window is not served at all. Times are those of clients. A window therefore also bounds how
far the clocks of clients may differ from the broker's.

The memory is bounded. If it runs full, the window gives up the signatures of whole seconds, those farthest
from now first, and serves no further send of these seconds. A restart forgets all signatures, so the window
begins with the start of the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from rmq_remoting.answers import Answer
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

# An entry without its answer: the signature's text, the object, its places in a dictionary and a set.
_ENTRY_BYTES: Final = 400
_MAX_BYTES: Final = 128 * 1024 * 1024
_SECOND_MS: Final = 1000


class ServedSend:
    """A send that was served, or is being served: the client's host, and the answer."""

    __slots__ = ("answer", "host", "pending", "second", "size_bytes")

    def __init__(self, host: str, second: int) -> None:
        self.host = host
        self.second = second
        self.answer: Answer = None
        self.pending: asyncio.Future[Answer] | None = None
        self.size_bytes = _ENTRY_BYTES


class ReplayWindow:
    """Sends by signature. Belongs to the loop."""

    def __init__(self, window_ms: int, now_ms: Callable[[], int], *, max_bytes: int = _MAX_BYTES) -> None:
        """Begin a window that reaches `window_ms` into the past and into the future."""
        self._window_ms = window_ms
        self._now_ms = now_ms
        self._max_bytes = max_bytes
        self._sends: dict[str, ServedSend] = {}
        self._by_second: dict[int, set[str]] = {}
        # Seconds whose signatures were given up: further sends made in them are refused.
        self._closed: set[int] = set()
        # Sends made up to then are refused. It never goes back, also if the clock does.
        self._floor_ms = self._started_ms = now_ms()
        self._swept = self._floor_ms // _SECOND_MS
        self.size_bytes = 0
        self.closed_seconds = 0

    def __len__(self) -> int:
        return len(self._sends)

    def find(self, signature: str) -> ServedSend | None:
        """Return the send with a signature, if it was served within the window."""
        return self._sends.get(signature)

    def enter(self, signature: str, born_ms: int, host: str) -> ServedSend:
        """Remember a send that is about to be served. Raises CommandError (NO_PERMISSION) for its time.

        `born_ms`: when the client made it, in milliseconds since 1970.
        """
        now_ms = self._now_ms()
        self._floor_ms = max(self._floor_ms, now_ms - self._window_ms)
        second = born_ms // _SECOND_MS
        if born_ms <= self._floor_ms:
            is_recent = now_ms - self._window_ms < born_ms <= self._started_ms
            raise self._refusal(now_ms - born_ms, "before the broker was started" if is_recent else "")
        if born_ms > now_ms + self._window_ms:
            raise self._refusal(now_ms - born_ms)
        self._sweep()
        if second in self._closed:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                "too many sends were signed in the second of this one to remember them all: send it again",
            )
        send = self._sends[signature] = ServedSend(host, second)
        self._by_second.setdefault(second, set()).add(signature)
        self.size_bytes += send.size_bytes
        while self.size_bytes > self._max_bytes and self._by_second:
            self._give_up(max(self._by_second, key=lambda each: abs(each * _SECOND_MS - now_ms)))
        return send

    def answered(self, signature: str, answer: Answer, length: int) -> None:
        """Remember the answer to a send, which takes `length` bytes."""
        send = self._sends.get(signature)
        if send is not None:
            send.answer, send.pending = answer, None
            send.size_bytes += length
            self.size_bytes += length

    def forget(self, signature: str) -> None:
        """Forget a send that had no effect, so that it may be sent again."""
        send = self._sends.pop(signature, None)
        if send is not None:
            self.size_bytes -= send.size_bytes
            self._by_second[send.second].discard(signature)

    def _refusal(self, age_ms: int, cause: str = "") -> CommandError:
        made = f"{abs(age_ms) / 1000:.1f} s {'ago' if age_ms >= 0 else 'in the future'}"
        reason = cause or f"outside signatureReplayWindowSeconds={self._window_ms // 1000}"
        return CommandError(
            ResponseCode.NO_PERMISSION,
            f"the send was made {made}, {reason}: send it again, and compare the clocks of client and broker",
        )

    def _sweep(self) -> None:
        """Forget the seconds that are before the window."""
        oldest = self._floor_ms // _SECOND_MS
        if oldest > self._swept:
            self._swept = oldest
            for second in [second for second in self._by_second if second < oldest]:
                self._drop(second)
            self._closed = {second for second in self._closed if second >= oldest}

    def _give_up(self, second: int) -> None:
        self._drop(second)
        self._closed.add(second)
        self.closed_seconds += 1

    def _drop(self, second: int) -> None:
        for signature in self._by_second.pop(second):
            self.size_bytes -= self._sends.pop(signature).size_bytes
