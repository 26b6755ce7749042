"""Ext fields as bytes: the places of fields, without decoding the others."""

from __future__ import annotations

from collections.abc import Collection


def places_of(names: Collection[bytes], raw: bytes) -> list[int]:
    """Return the positions of these fields in a well-formed binary map, one for each occurrence."""
    places = []
    at, end = 0, len(raw)
    while at < end:
        value_length_at = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        if raw[at + 2 : value_length_at] in names:
            places.append(at)
        at = value_length_at + 4 + int.from_bytes(raw[value_length_at : value_length_at + 4], "big")
    return places


def stand_once(marks: Collection[bytes], raw: bytes) -> bool:
    """Whether each of these names stands once in a well-formed JSON map, and in no inner object.

    A mark is a name in quotation marks with its colon, and with the first one of its value.
    """
    return raw.count(b"{") == 1 and all(raw.count(mark) == 1 for mark in marks)
