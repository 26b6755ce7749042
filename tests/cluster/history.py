"""The history of a run: answers and deliveries to clients, terms of masters, and faults.

All times are seconds of the machine's monotonic clock, which all processes of a run share. The load writes
its part as lines of JSON, each a kind and its fields.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

Queue = tuple[str, int]
Place = tuple[Queue, int]

SEND_OK: Final = "SEND_OK"


@dataclass(frozen=True, slots=True)
class Send:
    """One send with its answer; each body is sent once.

    body             a text that no other message has
    status           of the answer (SEND_OK …), or the class of the error
    topic … broker   where the message is stored, and the address of the broker that says so; empty for errors
    """

    body: str
    sent_at: float
    answered_at: float
    status: str
    topic: str = ""
    queue_id: int = -1
    offset: int = -1
    broker: str = ""

    @property
    def is_acknowledged(self) -> bool:
        """Whether the message may never be lost."""
        return self.status == SEND_OK

    @property
    def place(self) -> Place:
        return (self.topic, self.queue_id), self.offset


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that a consumer was given. `is_first`: not a redelivery, which may have another place."""

    group: str
    body: str
    topic: str
    queue_id: int
    offset: int
    at: float
    is_first: bool = True

    @property
    def place(self) -> Place:
        return (self.topic, self.queue_id), self.offset


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset of a group, as the broker at this address told."""

    broker: str
    group: str
    topic: str
    queue_id: int
    offset: int
    at: float


@dataclass(slots=True)
class Term:
    """The time for which one broker may accept messages; `ended` is None while it lasts."""

    broker: str
    began: float
    ended: float | None = None


@dataclass(slots=True)
class FaultRecord:
    """A fault that was there from `began` to `healed`, and how long the group then took to be whole."""

    name: str
    began: float
    healed: float = 0.0
    whole: float = 0.0


@dataclass(slots=True)
class History:
    """All that is known of a run."""

    sends: list[Send] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    faults: list[FaultRecord] = field(default_factory=list)

    def read_load(self, path: Path) -> None:
        """Add what a load has written; a last line without an end is skipped."""
        for line in path.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break
            kind, *values = json.loads(line)
            if kind == Send.__name__:
                self.sends.append(Send(*values))
            else:
                self.deliveries.append(Delivery(*values))

    @property
    def acknowledged(self) -> list[Send]:
        """The sends that were answered SEND_OK."""
        return [send for send in self.sends if send.is_acknowledged]


def line_of(event: Send | Delivery) -> str:
    """One line of a load's history."""
    return json.dumps([type(event).__name__, *dataclasses.astuple(event)]) + "\n"


def statuses(sends: Iterable[Send]) -> dict[str, int]:
    """How many sends were answered in which way."""
    counts: dict[str, int] = {}
    for send in sends:
        counts[send.status] = counts.get(send.status, 0) + 1
    return dict(sorted(counts.items()))
