"""Java's integers as field types of headers and bodies: decoding refuses a value out of range."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .integer_bounds import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN

Int32 = Annotated[int, Field(ge=INT32_MIN, le=INT32_MAX)]
Int64 = Annotated[int, Field(ge=INT64_MIN, le=INT64_MAX)]
