"""Headers of replication (codes 906, 908)."""

from __future__ import annotations

from ..integers import Int64
from .base import Header


class ExchangeHAInfoRequestHeader(Header):
    """906: a slave asks its master for the address to replicate from, or a master announces it."""

    master_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_ha_address: str | None = None


class ExchangeHAInfoResponseHeader(Header):
    """The master's addresses and flushed offset."""

    master_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_ha_address: str | None = None


class ResetMasterFlushOffsetHeader(Header):
    """908: sets the offset to which a slave believes that its master has flushed."""

    master_flush_offset: Int64
