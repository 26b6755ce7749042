"""For how long queues have been in abnormal conditions that may end by themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ..errors import listed
from ..offsets import QueueKey

log = logging.getLogger(__name__)


class ConditionTimers:
    """Tracks for how long each queue has been in one abnormal condition."""

    def __init__(self, text: str, clock: Callable[[], float]) -> None:
        """`text`: the beginning of the log line. `clock`: seconds of a monotonic clock."""
        self._text = text
        self._clock = clock
        self._since: dict[QueueKey, float] = {}

    def update(self, queues: Iterable[QueueKey]) -> dict[QueueKey, float]:
        """Take all queues in that condition now; log the new ones. Return for how many seconds each has been
        in it.
        """
        now = self._clock()
        known, self._since = self._since, {}
        for queue in queues:
            self._since[queue] = known.get(queue, now)
        new = [queue for queue in self._since if queue not in known]
        if new:
            log.warning("%s queues=%s", self._text, listed(new))
        return {queue: now - since for queue, since in self._since.items()}
