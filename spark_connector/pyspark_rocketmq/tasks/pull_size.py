"""How many messages a broker gives in one pull: found out while reading, since brokers do not tell."""

from __future__ import annotations

from typing import Final

# After so many full answers in a row, twice as many messages are tried once.
_FULL_ANSWERS_BEFORE_MORE: Final = 64


class PullSize:
    """What to ask of one broker, in messages; `current` follows what it gave.

    Brokers cap a pull by messages and bytes, and cap otherwise what they read from disk (Apache RocketMQ
    5.3.3: 32 messages and 256 KiB, 8 messages and 64 KiB). Pulls beside each other need offsets that are
    guessed by this size: too large a guess leaves holes that cost a round trip each, too small a one costs
    requests.
    """

    __slots__ = ("_full", "current", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.current = most
        self._full = 0

    def answered(self, asked: int, got: int) -> None:
        """A pull for `asked` messages, that were there, brought `got`."""
        if got >= asked:
            if asked >= self.current:
                self._full += 1
            if self._full >= _FULL_ANSWERS_BEFORE_MORE:
                self._full = 0
                self.current = min(self.most, self.current * 2)
        elif got < self.current:
            self.current = max(1, got)
            self._full = 0
