"""Flow control of cold reads, and reading ahead (Apache RocketMQ 5.3.3, ColdDataCgCtrService)."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from rmq_remoting.bodies.cold_data import ColdDataFlowControlInfo
from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.base import Header

from .arguments import checked
from .base import AdminBase
from .broker_results import ColdReads, GroupColdReads
from .property_lines import to_lines
from .results import time_of

# Ends the names of thresholds that a broker has adapted.
_ADAPTED: Final = "||adaptive"
# The modes of madvise(2) that Apache's tool sends: MADV_NORMAL and MADV_RANDOM.
_READ_AHEAD: Final = "0"
_RANDOM: Final = "1"


class _ReadAheadHeader(Header):
    """2004. Apache's client has no class for this header."""

    mode: str = Field(alias="READ_AHEAD_MODE")


class ColdDataAdmin(AdminBase):
    """Flow control of groups that read old messages. Brokers forget these settings when they stop."""

    @checked
    async def cold_reads(self, broker_name: str, broker_id: int = MASTER_BROKER_ID) -> ColdReads:
        """Return what groups read cold on a broker, and from how many bytes on they are slowed down.

        Raises ClientError.
        """
        info = await self._body(
            await self._broker(broker_name, broker_id),
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
            None,
            f"cold reads of broker {broker_name}",
            ColdDataFlowControlInfo.decode,
        )
        unwrap = self._namespace.unwrap
        return ColdReads(
            period_bytes=info.global_acc,
            group_threshold=info.cg_cold_read_threshold,
            total_threshold=info.global_cold_read_threshold,
            groups=tuple(
                GroupColdReads(
                    unwrap(group),
                    account.cold_acc,
                    time_of(account.create_time_ms),
                    time_of(account.last_cold_read_time_ms),
                )
                for group, account in sorted(info.runtime_table.items())
            ),
            thresholds={
                unwrap(group): threshold
                for group, threshold in sorted(info.config_table.items())
                if not group.endswith(_ADAPTED)
            },
            adapted={
                unwrap(group.removesuffix(_ADAPTED)): threshold
                for group, threshold in sorted(info.config_table.items())
                if group.endswith(_ADAPTED)
            },
        )

    @checked
    async def set_cold_read_threshold(
        self,
        group: str,
        threshold_bytes: int,
        *,
        cluster: str | None = None,
        broker_name: str | None = None,
    ) -> None:
        """Give a group a threshold of its own on all masters, in bytes of cold messages within 5 s.

        Brokers of this project and Apache's slow it down with `coldDataFlowControlEnable` only. Raises
        ClientError.
        """
        name = self._namespace.checked_group(group)
        body = to_lines({name: str(threshold_bytes)}).encode()
        masters, code = (
            await self._masters(cluster, broker_name),
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        )
        about = f"cold read threshold of group {group}"
        await self._of_each(masters, lambda address: self._api.call(address, code, None, body, about=about))

    @checked
    async def remove_cold_read_threshold(
        self, group: str, *, cluster: str | None = None, broker_name: str | None = None
    ) -> None:
        """Let the common threshold apply to a group again; it need not have one of its own.

        Raises ClientError.
        """
        body = self._namespace.checked_group(group).encode()
        masters, code = (
            await self._masters(cluster, broker_name),
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        )
        about = f"cold read threshold of group {group}"
        await self._of_each(masters, lambda address: self._api.call(address, code, None, body, about=about))

    @checked
    async def set_read_ahead(
        self, enabled: bool, *, cluster: str | None = None, broker_name: str | None = None
    ) -> list[str]:
        """Let masters read the log ahead of consumers, or not; return their names.

        Raises ClientError.
        """
        header = _ReadAheadHeader(mode=_READ_AHEAD if enabled else _RANDOM)
        masters, code = await self._masters(cluster, broker_name), RequestCode.SET_COMMITLOG_READ_MODE
        await self._of_each(
            masters, lambda address: self._api.call(address, code, header, about="mode of reading ahead")
        )
        return sorted(masters)
