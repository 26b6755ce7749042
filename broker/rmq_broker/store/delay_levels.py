"""The delay levels: the delay of the messages of each level (setting messageDelayLevel).

Source: Apache RocketMQ 5.3.3, ScheduleMessageService, HookUtils.transformDelayLevelMessage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

DEFAULT_DELAY_LEVEL_TEXT: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL: Final = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
# Each level is a queue of its own.
_MOST_LEVELS: Final = 1000


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The delay of each level in ms; levels count from 1. There is at least one."""

    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> DelayLevels:
        """Parse the setting's text. Raises ValueError with the rule that it breaks."""
        delays_ms = []
        for part in text.split():
            found = _LEVEL.fullmatch(part)
            if found is None:
                raise ValueError(
                    f"a number and one of s, m, h, d for each level, with blanks between, as in 1s 5s 1h; "
                    f"{part!r} is not one"
                )
            delays_ms.append(int(found[1]) * _UNITS_MS[found[2]])
        if not 1 <= len(delays_ms) <= _MOST_LEVELS:
            raise ValueError(f"1 to {_MOST_LEVELS} levels; these are {len(delays_ms)}")
        return cls(tuple(delays_ms))

    @property
    def highest(self) -> int:
        """The highest level."""
        return len(self.delays_ms)

    def in_range(self, level: int) -> int:
        """Return the level, limited to the highest."""
        return min(level, self.highest)

    def delay_ms(self, level: int) -> int:
        """Return the delay of a level, 1 or above, in ms."""
        return self.delays_ms[self.in_range(level) - 1]

    def at_least(self, delay_ms: int) -> int:
        """Return the level with the shortest delay of at least `delay_ms`, else that with the longest."""
        fitting = [delay for delay in self.delays_ms if delay >= delay_ms]
        wanted = min(fitting) if fitting else max(self.delays_ms)
        return self.delays_ms.index(wanted) + 1


DEFAULT_DELAY_LEVELS: Final = DelayLevels.parse(DEFAULT_DELAY_LEVEL_TEXT)


def queue_of_level(level: int) -> int:
    """Return the id of the queue of SCHEDULE_TOPIC_XXXX that holds the messages of a level."""
    return level - 1


def level_of_queue(queue_id: int) -> int:
    """Return the level whose messages a queue of SCHEDULE_TOPIC_XXXX holds."""
    return queue_id + 1
