"""Ext fields as they come in binary headers: where a field is, without decoding the others."""

from __future__ import annotations

from collections.abc import Collection


def places_of(names: Collection[bytes], raw: bytes) -> list[int]:
    """Where in a well-formed map these fields begin, as often as they occur."""
    places = []
    at, end = 0, len(raw)
    while at < end:
        value_length_at = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        if raw[at + 2 : value_length_at] in names:
            places.append(at)
        at = value_length_at + 4 + int.from_bytes(raw[value_length_at : value_length_at + 4], "big")
    return places
