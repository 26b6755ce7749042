"""State of replication, as requested by administrators (code 907)."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32, Int64
from .base import Body


class HAConnectionRuntimeInfo(Body):
    """One replica, as its master sees it; `diff` is how many bytes of the log it lacks."""

    addr: str | None = None
    diff: Int64 = 0
    in_sync: bool = False
    slave_ack_offset: Int64 = 0
    transfer_from_where: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HAClientRuntimeInfo(Body):
    """A replica's own state; times in ms since the epoch."""

    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_addr: str | None = None
    master_flush_offset: Int64 = 0
    max_offset: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HARuntimeInfo(Body):
    """907: a master lists its replicas, a replica tells about itself."""

    ha_client_runtime_info: HAClientRuntimeInfo = Field(default_factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionRuntimeInfo] = Field(default_factory=list)
    in_sync_slave_nums: Int32 = 0
    master: bool = False
    master_commit_log_max_offset: Int64 = 0
