"""Answers of the master that a replica may apply only when its log holds what they rest on.

Apache's slave applies them at once. If the master is lost then before the slave has the rest of the log,
delivered messages, check points of popped messages or consumed messages are missing there, and the offsets
say that they were delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

log = logging.getLogger("rmq.broker.replication")

Apply = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class _Held:
    apply: Apply
    log_end: int | None = None  # of the master, asked for after the answer; None: not known yet


class LogBarrier:
    """Holds answers by name until the replica's log is flushed up to the end of the master's log.

    Of each name two are held: the newest, and the oldest, since a replica that always lags would apply none
    otherwise.
    """

    def __init__(self, reached: Callable[[], int]) -> None:
        """`reached`: the offset up to which this replica's log is flushed and entered in its queues."""
        self._reached = reached
        self._held: dict[str, list[_Held]] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def needs_end(self) -> bool:
        """Whether answers are held for which the end of the master's log is to be asked for."""
        return any(answers[-1].log_end is None for answers in self._held.values())

    def hold(self, name: str, apply: Apply) -> None:
        """Call `apply` later."""
        answers = self._held.setdefault(name, [])
        del answers[1:]
        answers.append(_Held(apply))

    def master_ends_at(self, log_end: int) -> None:
        """Take note of the master's end; it has to be asked for after the answers that are held."""
        for name, answers in self._held.items():
            for answer in list(answers):
                if answer.log_end is None:
                    answer.log_end = log_end
                elif log_end < answer.log_end:
                    # The master has lost the end of its log, so this point may never be reached.
                    log.warning(
                        "metadata of the master dropped, its log became shorter part=%s log_end=%d before=%d",
                        *(name, log_end, answer.log_end),
                    )
                    answers.remove(answer)
        self._drop_empty()

    def take_reached(self) -> list[tuple[str, Apply]]:
        """Remove the answers that can be applied now; return the newest of each name."""
        reached = self._reached()
        taken: list[tuple[str, Apply]] = []
        for name, answers in self._held.items():
            usable = [each for each in answers if each.log_end is not None and each.log_end <= reached]
            if usable:
                taken.append((name, usable[-1].apply))
                del answers[: len(usable)]
        self._drop_empty()
        return taken

    def clear(self) -> None:
        """Drop everything, because the master has changed."""
        self._held.clear()

    def _drop_empty(self) -> None:
        self._held = {name: answers for name, answers in self._held.items() if answers}
