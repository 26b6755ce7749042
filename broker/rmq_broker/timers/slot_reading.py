"""Read the messages of a due slot, in a thread."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from rmq_remoting.message_properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    find_property,
)

from ..delivery.inner_message import read_message
from ..store.api import ColdLog, parse_record

if TYPE_CHECKING:
    from .log_unit import Unit
    from .timer_log import TimerLog

_SLICE_BYTES: Final = 1 << 20


class SlotReading:
    """Reads entries of the timer log and the records of their messages; its methods block."""

    def __init__(self, timer_log: TimerLog) -> None:
        self._timer_log = timer_log

    def messages(self, positions: array[int], commit_log: ColdLog) -> list[tuple[Unit | None, bytes | None]]:
        """Read the entries at these positions and the records of their messages: at least one, up to a limit.

        An entry is None if it is missing, a record if it is missing or damaged. Raises OSError.
        """
        units: list[Unit | None] = []
        total = 0
        for position in positions:
            unit = self._timer_log.unit(position)
            total += 0 if unit is None else unit.size
            if units and total > _SLICE_BYTES:
                break
            units.append(unit)
        there = sorted((unit.physical_offset, unit.size) for unit in units if unit is not None)
        if there:
            commit_log.expect(there)
        return [(unit, None if unit is None else _record(unit, commit_log)) for unit in units]

    def recalls(self, positions: array[int], commit_log: ColdLog) -> dict[str, str]:
        """Read recalls; return their topics by key (topic and unique key). Raises OSError."""
        recalls = {}
        for position in positions:
            unit = self._timer_log.unit(position)
            record = None if unit is None else _record(unit, commit_log)
            if record is None:
                continue
            properties = read_message(record).message.properties
            key = find_property(properties, PROPERTY_TIMER_DEL_UNIQKEY.encode())
            if key:
                topic = find_property(properties, PROPERTY_REAL_TOPIC.encode()) or b""
                recalls[key.decode("utf-8", "replace")] = topic.decode("utf-8", "replace")
        return recalls


def _record(unit: Unit, commit_log: ColdLog) -> bytes | None:
    data = commit_log.read(unit.physical_offset, unit.size)
    if data is None or parse_record(data, 0, unit.physical_offset) is None:
        return None
    return data
