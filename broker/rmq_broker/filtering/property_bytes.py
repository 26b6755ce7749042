"""Read single properties from a message's raw property bytes, without decoding the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_AFTER_NAME: Final = b"\x01"
_AFTER_VALUE: Final = b"\x02"


def property_finder(name: str) -> Callable[[bytes], bytes | None]:
    """Return a function that finds the value of a property as UTF-8; None if the message lacks it.

    It equals `find_property` of `message_properties`, prepared for one name, and is nearly twice as fast.
    """
    first = name.encode("utf-8", "surrogatepass") + _AFTER_NAME
    later = _AFTER_VALUE + first
    first_length, later_length = len(first), len(later)

    def find(properties: bytes) -> bytes | None:
        at = properties.rfind(later)
        while at >= 0:
            start = at + later_length
            end = properties.find(_AFTER_VALUE, start)
            if value := properties[start:] if end < 0 else properties[start:end]:
                return value
            at = properties.rfind(later, 0, at)  # an empty occurrence does not count; the previous one does
        if not properties.startswith(first):
            return None
        end = properties.find(_AFTER_VALUE, first_length)
        return (properties[first_length:] if end < 0 else properties[first_length:end]) or None

    return find
