"""A fake queue that answers pulls as brokers do. Bodies are lists of offsets."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from rmq_client import ClientError, MessageQueue, PullStatus, PullWish, RawPull


def body_of(offsets: Iterable[int]) -> bytes:
    return b"".join(b"%d;" % offset for offset in offsets)


def offsets_in(bodies: Iterable[bytes]) -> list[int]:
    return [int(text) for body in bodies for text in body.split(b";") if text]


@dataclass
class FakeQueue:
    """Offsets from `lowest` up to, but not including, `highest`.

    `max_count`: maximum of messages in an answer. `units`: messages per batch unit, which is never split.
    `wanted`: offsets that pass a filter, None for all. `faults`: errors of the next pulls. `seed`: delay
    answers by random times.
    """

    lowest: int = 0
    highest: int = 1000
    max_count: int = 32
    units: int = 1
    wanted: frozenset[int] | None = None
    look_through: int = 100
    message_bytes: int = 0
    faults: deque[ClientError] = field(default_factory=deque)
    answers: deque[RawPull] = field(default_factory=deque)
    seed: int | None = None
    asked: list[tuple[int, PullWish]] = field(default_factory=list)
    in_flight: int = 0
    max_in_flight: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    async def pull(self, queue: MessageQueue, offset: int, wish: PullWish) -> RawPull:
        self.asked.append((offset, wish))
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0 if self.seed is None else self._random.random())
            if self.faults:
                raise self.faults.popleft()
            return self.answers.popleft() if self.answers else self._answer(offset, wish)
        finally:
            self.in_flight -= 1

    def _answer(self, offset: int, wish: PullWish) -> RawPull:
        if offset < self.lowest:
            return self._none(PullStatus.OFFSET_ILLEGAL, self.lowest)
        if offset >= self.highest:
            moved = offset > self.highest
            return self._none(PullStatus.OFFSET_ILLEGAL if moved else PullStatus.NO_NEW_MESSAGE, self.highest)
        if self.wanted is not None:
            return self._filtered(offset, wish, self.wanted)
        most = min(wish.max_messages, self.max_count)
        first = offset - offset % self.units
        units = max(1, most // self.units)
        after = min(self.highest, first + units * self.units)
        body = body_of(range(max(first, self.lowest), after)) + b";" * (self.message_bytes * (after - first))
        return RawPull(PullStatus.FOUND, after, self.lowest, self.highest, body)

    def _filtered(self, offset: int, wish: PullWish, wanted: frozenset[int]) -> RawPull:
        found: list[int] = []
        after = offset
        while after < min(self.highest, offset + self.look_through):
            if len(found) == min(wish.max_messages, self.max_count):
                break
            if after in wanted:
                found.append(after)
            after += 1
        if not found:
            return self._none(PullStatus.NO_MATCHED_MESSAGE, after)
        return RawPull(PullStatus.FOUND, after, self.lowest, self.highest, body_of(found))

    def _none(self, status: PullStatus, next_offset: int) -> RawPull:
        return RawPull(status, next_offset, self.lowest, self.highest, b"")
