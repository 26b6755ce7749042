"""Ext fields that are left out where they have no value."""

from __future__ import annotations


def with_optional(fields: dict[str, str], **optional: str | None) -> dict[str, str]:
    """Add the optional fields that have a value, and return the fields."""
    for name, value in optional.items():
        if value is not None:
            fields[name] = value
    return fields
