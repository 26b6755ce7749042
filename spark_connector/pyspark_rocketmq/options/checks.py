"""What cannot go together among the options of reading. All raise OptionError."""

from __future__ import annotations

from ..errors import OptionError, listed
from ..offsets import QueueOffsets
from .parsing import OptionGroup
from .positions import Anchor, AtOffsets, AtTimes, Position


def reject_alternatives(group: OptionGroup, *fields: str) -> None:
    """Only one of these may be given: they say the same thing."""
    given = [field for field in fields if getattr(group, field) is not None]
    if len(given) > 1:
        first, second = (type(group).model_fields[field].alias for field in given[:2])
        raise OptionError(str(second), None, f"left out, as {first} is given")


def reject_anchor(name: str, position: Position | None, anchor: Anchor, placeholder: int) -> None:
    """A batch read would be empty, in all queues or in those that have the stand-in for it."""
    allowed = f"another place: a batch that has {anchor.value} there is empty"
    if position is anchor:
        raise OptionError(name, None, allowed)
    if isinstance(position, AtOffsets):
        named = [key for key, offset in position.offsets.items() if offset == placeholder]
        if named:
            raise OptionError(name, None, allowed, f"{placeholder} for {listed(named)}")


def reject_end_before_start(name: str, start: Position | None, end: Position | None) -> None:
    """In no queue may the end, where it is a number, be before the start."""
    starts, ends = by_queue(start), by_queue(end)
    behind = [key for key in ends if 0 <= ends[key] < starts.get(key, 0)]
    if behind:
        raise OptionError(name, None, "where reading starts, or after that", listed(behind))


def by_queue(position: Position | None) -> QueueOffsets:
    """The numbers of a position that has one for each queue."""
    if isinstance(position, AtOffsets):
        return position.offsets
    return position.timestamps_ms if isinstance(position, AtTimes) else QueueOffsets()
