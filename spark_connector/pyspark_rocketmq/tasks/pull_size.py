"""How much a broker returns per pull, learned from its answers."""

from __future__ import annotations

from typing import Final

# After this number of full answers in a row, twice as many messages are requested once.
_FULL_ANSWERS_BEFORE_MORE: Final = 64


class PullSize:
    """The number of messages to request from one broker; `current` follows its answers.

    Brokers cap a pull by messages and bytes, with lower caps for reads from disk (Apache RocketMQ 5.3.3: 32
    messages and 256 KiB, 8 messages and 64 KiB). They do not announce their caps. Concurrent pulls guess
    their offsets by this size: too large a guess leaves holes that cost a round trip each, too small a guess
    costs requests.
    """

    __slots__ = ("_full", "current", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.current = most
        self._full = 0

    def answered(self, asked: int, got: int) -> None:
        """Adjust to an answer: a pull for `asked` existing messages returned `got`."""
        if got >= asked:
            if asked >= self.current:
                self._full += 1
            if self._full >= _FULL_ANSWERS_BEFORE_MORE:
                self._full = 0
                self.current = min(self.most, self.current * 2)
        elif got < self.current:
            self.current = max(1, got)
            self._full = 0


class FilteredSpan:
    """The number of offsets that an answer to a filtered pull covers; 0 before the first answer.

    Too high a guess costs more than too low a one: the broker answers the rest of the piece with messages
    that the next piece has, too. The guess therefore stays below the offsets that answers cover. It follows a
    shorter answer at once, with a margin of an eighth, and a longer one slowly.
    """

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current = 0

    def answered(self, guessed: int, covered: int) -> None:
        """Adjust to an answer: a pull for `guessed` offsets covered `covered` of them, or more."""
        if not self.current or covered < min(guessed, self.current):
            self.current = max(1, covered - covered // 8)
        elif covered > self.current:
            self.current += (covered - self.current) // 8
