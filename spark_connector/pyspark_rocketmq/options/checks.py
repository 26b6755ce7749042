"""Checks for contradictions between options of reading. All raise OptionError."""

from __future__ import annotations

from ..errors import OptionError, listed
from ..offsets import QueueOffsets
from .parsing import OptionGroup, option_name
from .positions import Anchor, AtOffsets, AtTimes, Position


def reject_alternatives(group: OptionGroup, *fields: str) -> None:
    """Reject more than one of these options: they are alternatives."""
    given = [field for field in fields if getattr(group, field) is not None]
    if len(given) > 1:
        first, second = (option_name(type(group), field) for field in given[:2])
        raise OptionError(second, None, f"left out, because {first} is given")


def reject_anchor(name: str, position: Position | None, anchor: Anchor, placeholder: int) -> None:
    """Reject an anchor with which a batch read would be empty, in all queues or in some of them.

    `placeholder`: the number that stands for the anchor in offsets by queue."""
    allowed = f"another position: a batch with {anchor.value} there is empty"
    if position is anchor:
        raise OptionError(name, None, allowed)
    if isinstance(position, AtOffsets):
        named = [key for key, offset in position.offsets.items() if offset == placeholder]
        if named:
            raise OptionError(name, None, allowed, f"{placeholder} for {listed(named)}")


def reject_end_before_start(name: str, start: Position | None, end: Position | None) -> None:
    """Reject an end, given as a number, that is before the start of its queue."""
    starts, ends = by_queue(start), by_queue(end)
    behind = [key for key in ends if 0 <= ends[key] < starts.get(key, 0)]
    if behind:
        raise OptionError(name, None, "at or after the start of reading", listed(behind))


def by_queue(position: Position | None) -> QueueOffsets:
    """Return the numbers of a position that has one for each queue."""
    if isinstance(position, AtOffsets):
        return position.offsets
    return position.timestamps_ms if isinstance(position, AtTimes) else QueueOffsets()
