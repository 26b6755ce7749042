"""Brokers: their settings, state, statistics, replication, and the cleaning of their files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rmq_remoting.bodies.broker_stats import BrokerStatsData, BrokerStatsItem
from rmq_remoting.bodies.ha import HARuntimeInfo
from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.admin import ViewBrokerStatsDataRequestHeader

from ..errors import UsageError
from .arguments import checked, checked_with, one_of
from .base import AdminBase
from .broker_results import BrokerRuntime
from .broker_runtime import runtime_of
from .property_lines import parse_lines, to_lines
from .results import Figure, Figures, ReplicaState, ReplicationStatus, time_of

_CLEANINGS: Final = {
    "expired queues": RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "unused topics": RequestCode.CLEAN_UNUSED_TOPIC,
    "expired log": RequestCode.DELETE_EXPIRED_COMMITLOG,
}


class BrokerAdmin(AdminBase):
    """Administration of brokers. `broker_id` 0 is the master of a broker name, others are replicas."""

    @checked
    async def broker_settings(self, broker_name: str, broker_id: int = MASTER_BROKER_ID) -> dict[str, str]:
        """Return the settings of a broker by Apache's keys. Raises ClientError."""
        return await self._body(
            await self._broker(broker_name, broker_id),
            RequestCode.GET_BROKER_CONFIG,
            None,
            f"settings of broker {broker_name}",
            lambda body: parse_lines(body.decode("utf-8", "replace")),
        )

    @checked
    async def update_broker_settings(
        self, broker_name: str, settings: Mapping[str, str], broker_id: int = MASTER_BROKER_ID
    ) -> None:
        """Change settings of a broker, by Apache's keys; all of them take effect, or none.

        Brokers of this project refuse unknown keys and wrong values, Apache's ignore them. Settings that are
        read at the start only take effect at the next start. Raises ClientError.
        """
        if not settings:
            raise UsageError("settings is empty: name at least one setting, by Apache's key")
        await self._api.call(
            await self._broker(broker_name, broker_id),
            RequestCode.UPDATE_BROKER_CONFIG,
            None,
            to_lines(settings).encode(),
            about=f"change of settings of broker {broker_name}",
        )

    @checked
    async def broker_status(self, broker_name: str, broker_id: int = MASTER_BROKER_ID) -> dict[str, str]:
        """Return the runtime information of a broker, by Apache's names. Raises ClientError."""
        table = await self._body(
            await self._broker(broker_name, broker_id),
            RequestCode.GET_BROKER_RUNTIME_INFO,
            None,
            f"state of broker {broker_name}",
            KVTable.decode,
        )
        return dict(sorted(table.table.items()))

    @checked
    async def broker_runtime(self, broker_name: str, broker_id: int = MASTER_BROKER_ID) -> BrokerRuntime:
        """Return what a broker has done since its start, and does now. Raises ClientError."""
        return runtime_of(await self.broker_status(broker_name, broker_id))

    @checked
    async def broker_figures(self, broker_name: str, statistic: str, key: str) -> Figures:
        """Return one of Apache's statistics of a broker.

        `statistic` is TOPIC_PUT_NUMS or TOPIC_PUT_SIZE (`key`: a topic), GROUP_GET_NUMS or GROUP_GET_SIZE
        (`topic@group`), BROKER_PUT_NUMS or BROKER_GET_NUMS (the cluster's name). Raises ClientError, also for
        a topic or group without messages since the broker's start.
        """
        data = await self._body(
            await self._broker(broker_name),
            RequestCode.VIEW_BROKER_STATS_DATA,
            ViewBrokerStatsDataRequestHeader(stats_name=statistic, stats_key=key),
            f"statistic {statistic} of {key}",
            BrokerStatsData.decode,
        )
        return Figures(_figure(data.stats_minute), _figure(data.stats_hour), _figure(data.stats_day))

    @checked
    async def replication_status(
        self, broker_name: str, broker_id: int = MASTER_BROKER_ID
    ) -> ReplicationStatus:
        """Return the state of replication as one broker sees it. Raises ClientError."""
        info = await self._body(
            await self._broker(broker_name, broker_id),
            RequestCode.GET_BROKER_HA_STATUS,
            None,
            f"replication of broker {broker_name}",
            HARuntimeInfo.decode,
        )
        if info.master:
            return ReplicationStatus(
                is_master=True,
                log_end=info.master_commit_log_max_offset,
                in_sync=info.in_sync_slave_nums,
                replicas=tuple(
                    ReplicaState(
                        address=each.addr or "",
                        acknowledged_offset=each.slave_ack_offset,
                        behind_bytes=each.diff,
                        in_sync=each.in_sync,
                        bytes_per_second=each.transferred_byte_in_second,
                    )
                    for each in info.ha_connection_info
                ),
            )
        own = info.ha_client_runtime_info
        return ReplicationStatus(
            is_master=False,
            log_end=own.max_offset,
            master_address=own.master_addr or "",
            last_read=time_of(own.last_read_timestamp),
            bytes_per_second=own.transferred_byte_in_second,
        )

    @checked_with(what=one_of(*_CLEANINGS))
    async def clean_brokers(
        self, what: str, *, cluster: str | None = None, broker_name: str | None = None
    ) -> list[str]:
        """Delete "expired queues", "unused topics" or the "expired log" of masters now; return their names.

        Brokers do the same by themselves in intervals. Raises ClientError.
        """
        masters = await self._masters(cluster, broker_name)
        about = f"cleaning of {what}"
        await self._of_each(masters, lambda address: self._api.call(address, _CLEANINGS[what], about=about))
        return sorted(masters)


def _figure(item: BrokerStatsItem | None) -> Figure | None:
    return None if item is None else Figure(item.sum, item.tps, item.average_per_call)
