"""The form of an entry in the timer log (Apache RocketMQ 5.3.3, TimerLog)."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

# Size, previous, magic, write time, delay, physical offset, message size, hash of the topic, reserved.
UNIT: Final = Struct(">iqiqiqiiq")
UNIT_BYTES: Final = UNIT.size
BLANK: Final = Struct(">iqi")
BLANK_MAGIC: Final = (0xBBCCDDEE ^ (1880681586 + 8)) - (1 << 32)
_MAGIC_BITS: Final = 0xF

# Bits of a magic.
DEFAULT: Final = 1
ROLL: Final = 1 << 1
DELETE: Final = 1 << 2

NO_POSITION: Final = -1
# Apache's broker writes the last eight bytes as 0 and does not read them. Here the lowest bit marks messages
# of POP's journal. The other bits are the ms by which a message is due later than its own property says.
OF_THE_JOURNAL: Final = 1


class Unit(NamedTuple):
    """An entry: a message in the commit log, and the slot that it waits in.

    `previous` is the position of the previous entry of the same slot; -1: there is none. `later_ms`: a rolled
    message waits this much longer than its TIMER_OUT_MS, which is of a wheel with longer seconds.
    """

    previous: int
    magic: int
    written_ms: int
    slot_ms: int
    physical_offset: int
    size: int
    topic_hash: int
    is_journal: bool = False
    later_ms: int = 0

    @property
    def rolls(self) -> bool:
        """Whether the message is due beyond the wheel's window, and is entered again from its slot."""
        return bool(self.magic & ROLL)

    @property
    def deletes(self) -> bool:
        """Whether the message recalls another one."""
        return bool(self.magic & DELETE)

    @property
    def weight(self) -> int:
        """1, or -1 for a recall, which cancels out the recalled message."""
        return -1 if self.deletes else 1

    @property
    def end(self) -> int:
        """The end of the message in the commit log."""
        return self.physical_offset + self.size


def unit_of(values: tuple[int, ...]) -> Unit | None:
    """Return the entry with the values of a `UNIT`; None if it is invalid."""
    size, previous, magic, written_ms, delay_ms, physical_offset, message_bytes, topic_hash, reserved = values
    # A power cut may leave only the first page of an entry; then its end is zero.
    if size != UNIT_BYTES or magic & ~_MAGIC_BITS or message_bytes <= 0:
        return None
    return Unit(
        previous,
        magic,
        written_ms,
        written_ms + delay_ms,
        physical_offset,
        message_bytes,
        topic_hash,
        bool(reserved & OF_THE_JOURNAL),
        reserved >> 1,
    )
