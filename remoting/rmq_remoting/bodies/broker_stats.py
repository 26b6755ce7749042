"""Statistics of a broker, and the state of its replication."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32, Int64
from .base import Body


class BrokerStatsItem(Body):
    """A statistic over one period; `average_per_call` is the sum divided by the number of calls."""

    average_per_call: float = Field(default=0.0, alias="avgpt")
    sum: Int64 = 0
    tps: float = 0.0


class BrokerStatsData(Body):
    """One statistic over the last minute, hour and day."""

    stats_day: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_minute: BrokerStatsItem | None = None


class HAConnectionRuntimeInfo(Body):
    """A master's connection to one slave."""

    addr: str | None = None
    diff: Int64 = 0
    in_sync: bool = False
    slave_ack_offset: Int64 = 0
    transfer_from_where: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HAClientRuntimeInfo(Body):
    """A slave's connection to its master."""

    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_addr: str | None = None
    master_flush_offset: Int64 = 0
    max_offset: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HARuntimeInfo(Body):
    """The state of replication as one broker sees it."""

    ha_client_runtime_info: HAClientRuntimeInfo = Field(default_factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionRuntimeInfo] = Field(default_factory=list)
    in_sync_slave_nums: Int32 = 0
    master: bool = False
    master_commit_log_max_offset: Int64 = 0


class BrokerSyncInfo(Body):
    """Addresses and offset that master and slave exchange before replication."""

    master_address: str | None = None
    master_flush_offset: Int64 = 0
    master_ha_address: str | None = None
