"""Headers of replication (codes 906, 908)."""

from __future__ import annotations

from ..integers import Int64
from .base import Header


class ExchangeHAInfoRequestHeader(Header):
    """906: a slave asks its master where to replicate from, or a master tells."""

    master_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_ha_address: str | None = None


class ExchangeHAInfoResponseHeader(Header):
    """The master's answer."""

    master_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_ha_address: str | None = None


class ResetMasterFlushOffsetHeader(Header):
    """908: a slave's idea of how far its master has flushed."""

    master_flush_offset: Int64
