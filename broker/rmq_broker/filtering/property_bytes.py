"""Single properties out of a message's raw property bytes, without reading the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_AFTER_NAME: Final = b"\x01"
_AFTER_VALUE: Final = b"\x02"


def property_finder(name: str) -> Callable[[bytes], bytes | None]:
    """A function that gives the value of a property as UTF-8, None where the message does not have it.

    The same as `find_property` of `message_properties`, prepared for one name: nearly twice as fast where
    that counts.
    """
    first = name.encode("utf-8", "surrogatepass") + _AFTER_NAME
    later = _AFTER_VALUE + first
    first_length, later_length = len(first), len(later)

    def find(properties: bytes) -> bytes | None:
        at = properties.rfind(later)
        if at >= 0:
            start = at + later_length
        elif properties.startswith(first):
            start = first_length
        else:
            return None
        end = properties.find(_AFTER_VALUE, start)
        if end < 0:
            return properties[start:] or find(properties[: max(at, 0)])
        return properties[start:end] or find(properties[: max(at, 0)])

    return find
