"""Flow control of cold reads (code 2003)."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int64
from .base import Body


class ColdReadAccount(Body):
    """Cold bytes that a group has read in the current period of five seconds; times in ms since 1970 UTC."""

    cold_acc: Int64 = 0
    create_time_ms: Int64 = Field(0, alias="createTimeMills")
    last_cold_read_time_ms: Int64 = Field(0, alias="lastColdReadTimeMills")


class ColdDataFlowControlInfo(Body):
    """2003: what groups have read cold, and from how many bytes on they are slowed down.

    `config_table` has the thresholds of groups. Names that end with `||adaptive` are thresholds that the
    broker has adapted. (Apache RocketMQ 5.3.3, ColdDataCgCtrService.getColdDataFlowCtrInfo)
    """

    cg_cold_read_threshold: Int64 = 0
    config_table: dict[str, Int64] = Field(default_factory=dict)
    global_acc: Int64 = 0
    global_cold_read_threshold: Int64 = 0
    runtime_table: dict[str, ColdReadAccount] = Field(default_factory=dict)
