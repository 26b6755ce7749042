"""Limits of one call of the decoder, which the driver needs as well."""

from __future__ import annotations

from typing import Final

MAX_CHUNK_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of all pull responses of one call together."""
MAX_DECODED_BYTES: Final = 128 * 1024 * 1024
"""Maximum size of the records of one call after decompression, unless it is a single record."""
