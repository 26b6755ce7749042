"""Permissions of topics and brokers as bits (Apache RocketMQ 5.3.3, PermName), and topic system flags."""

from __future__ import annotations

from typing import Final

INHERIT: Final = 1
WRITE: Final = 2
READ: Final = 4
READ_WRITE: Final = READ | WRITE

_LIMIT: Final = 8

FLAG_UNIT: Final = 1
FLAG_UNIT_SUBSCRIPTION: Final = 2


def is_readable(perm: int) -> bool:
    """Whether consumers may read."""
    return perm & READ != 0


def is_writeable(perm: int) -> bool:
    """Whether producers may write."""
    return perm & WRITE != 0


def is_inherited(perm: int) -> bool:
    """Whether new topics may inherit from this one."""
    return perm & INHERIT != 0


def is_valid(perm: int) -> bool:
    """Whether the number is a combination of the three bits."""
    return 0 <= perm < _LIMIT


def perm_text(perm: int) -> str:
    """Return the bits as text, e.g. `RW-`."""
    return "".join(
        letter if perm & bit else "-" for letter, bit in (("R", READ), ("W", WRITE), ("X", INHERIT))
    )


def topic_system_flag(*, unit: bool, has_unit_subscription: bool) -> int:
    """Return a topic's system flag (Apache RocketMQ 5.3.3, TopicSysFlag)."""
    return unit * FLAG_UNIT | has_unit_subscription * FLAG_UNIT_SUBSCRIPTION
