"""Bounds of Java's integers. Apart from the field types, so that pulls do without pydantic."""

from __future__ import annotations

from typing import Final

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
