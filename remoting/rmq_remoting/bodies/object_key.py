"""A JSON object as a map key: fastjson writes maps with object keys that way."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from operator import itemgetter
from typing import Self


class ObjectKey(tuple[tuple[str, Hashable], ...]):
    """The object's members as (name, value) pairs, sorted by name; inner objects are frozen.

    It holds no lists: the hashes of lists of numbers can be made to collide, and a dictionary with such keys
    takes quadratic time. Every pair has a name, whose hash nobody can predict.
    """

    __slots__ = ()

    @classmethod
    def of(cls, members: Mapping[str, object]) -> Self:
        """Freeze an object. Raises TypeError if a value or a name cannot be part of a key."""
        for name in members:
            if not isinstance(name, str):
                raise TypeError(f"{name!r} cannot be a name in a map key")
        pairs = [(name, _frozen(value)) for name, value in members.items()]
        return cls(sorted(pairs, key=itemgetter(0)))

    def to_wire(self) -> dict[str, object]:
        """Return the object's members as a dict."""
        return dict(self)


def _frozen(value: object) -> Hashable:
    if isinstance(value, dict):
        return ObjectKey.of(value)
    if isinstance(value, Hashable):
        return value
    raise TypeError(f"{type(value).__name__} cannot be part of a map key")
