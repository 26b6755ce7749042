"""The runtime information that request 28 returns to `mqadmin`, the exporter and the dashboard.

Keys are those of Apache RocketMQ 5.3.3 (AdminBrokerProcessor.prepareRuntimeInfo, StoreStatsService,
DefaultMessageStore.getRuntimeInfo): tools parse them, so every key is
present, even without a figure behind it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from rmq_remoting.codes import VERSION_5_3_3, RequestCode

if TYPE_CHECKING:
    from rmq_remoting.tiers import Tier

    from ..settings.broker import BrokerSettings
    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import DiskSpace

_VERSION_TEXT: Final = "V5_3_3"
# A figure that Apache's broker lacks: replicas ask for it each second.
METADATA_VERSION: Final = "metadataVersion"

# Figures of features that do not exist here (the transient pool) or are off (timers).
_NOT_THERE: Final = {
    "dispatchMaxBuffer": "0",
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
    "remainTransientStoreBufferNumbs": str(2**31 - 1),
}
# Replaced by the store's own figures once it has them.
_STORE_DEFAULTS: Final = {
    "dispatchBehindBytes": "0",
    "pageCacheLockTimeMills": "0",
    "earliestMessageTimeStamp": "-1",
    "flushBehindBytes": "0",
    "getMessageEntireTimeMax": "0",
}
# Prefixes of Apache's keys for its thread pools, by the tier that does the work here.
_TIER_PREFIXES: Final = {
    "send": "sendThreadPoolQueue",
    "pull": "pullThreadPoolQueue",
    "lite_pull": "litePullThreadPoolQueue",
    "query": "queryThreadPoolQueue",
    "ack": "ackThreadPoolQueue",
}
# Requests of these tiers, which wait for the event loop before they wait for a thread.
_TIER_CODES: Final = {
    "send": frozenset(
        {
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.CONSUMER_SEND_MSG_BACK,
        }
    ),
    "pull": frozenset({RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE}),
    "lite_pull": frozenset({RequestCode.LITE_PULL_MESSAGE}),
    "query": frozenset({RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID}),
    "ack": frozenset(
        {
            RequestCode.ACK_MESSAGE,
            RequestCode.BATCH_ACK_MESSAGE,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        }
    ),
}
# Tiers that run on the loop, by the pool to which they pass their slow work.
_POOLS: Final = {"pull": "pull_cold", "lite_pull": "pull_cold"}
# Apache's keys for this one have no common prefix.
_TRANSACTION_TIER: Final = "transaction"


class StoreFigures(Protocol):
    """The store, as far as runtime information needs it."""

    def runtime_info(self) -> dict[str, str]:
        """Return the store's figures by Apache's keys."""


class RuntimeInfo:
    """Collects the figures; only reads."""

    def __init__(
        self,
        statistics: BrokerStatistics,
        store: StoreFigures,
        disk: DiskSpace,
        tiers: Sequence[Tier],
        settings: BrokerSettings,
        delay_positions: Callable[[], dict[int, tuple[int, int]]] = dict,
        timer_info: Callable[[], dict[str, str]] = dict,
        metadata_version: Callable[[], str] = lambda: "0",
    ) -> None:
        """`delay_positions` returns, by delay level, the next offset to deliver and the end of the queue.

        `timer_info` returns the figures of timed messages, `metadata_version` a text that differs after
        each change of topics, groups and request modes, for replicas.
        """
        self._statistics = statistics
        self._store = store
        self._disk = disk
        self._tiers = {tier.name: tier for tier in tiers}
        self._settings = settings
        self._delay_positions = delay_positions
        self._timer_info = timer_info
        self._metadata_version = metadata_version
        # Returns for how long the oldest request with one of these codes has waited for the event loop. The
        # listeners, which know that, are built later.
        self.oldest_wait_seconds: Callable[[frozenset[int]], float] = lambda codes: 0.0

    def collect(self) -> dict[str, str]:
        """Return all figures by key. Asks the file system for its free space."""
        store = _STORE_DEFAULTS | self._store.runtime_info()
        return {
            **_NOT_THERE,
            **self._statistics.runtime_info(),
            **store,
            **self._disk_ratios(),
            **self._queues(),
            **self._delay_levels(),
            **self._timer_info(),
            METADATA_VERSION: self._metadata_version(),
            "brokerActive": "true",
            "brokerVersion": str(VERSION_5_3_3),
            "brokerVersionDesc": _VERSION_TEXT,
            "startAcceptSendRequestTimeStamp": str(self._settings.start_accept_send_request_timestamp_ms),
            "remainHowManyDataToFlush": _readable_bytes(int(store["flushBehindBytes"])),
            "commitLogDirCapacity": self._capacity(),
        }

    def _disk_ratios(self) -> dict[str, str]:
        """Usage of the disks of log and queues, each by itself, as it decides about the deletion of files."""
        log_use, queue_use = self._disk.log_use, self._disk.queue_use
        if log_use is None or queue_use is None:  # not measured yet: the store's own figures stand
            return {}
        log_ratio = f"{log_use.ratio:.4f}"
        return {
            "commitLogDiskRatio": log_ratio,
            f"commitLogDiskRatio_{log_use.folder}": log_ratio,
            "consumeQueueDiskRatio": f"{queue_use.ratio:.4f}",
        }

    def _delay_levels(self) -> dict[str, str]:
        """By delay level in use: the next offset to deliver, and the end of its queue."""
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{end}"
            for level, (offset, end) in self._delay_positions().items()
        }

    def _queues(self) -> dict[str, str]:
        """Sizes and capacities of the tiers' queues."""
        tiers = self._tiers
        figures: dict[str, str] = {}
        for name, prefix in _TIER_PREFIXES.items():
            tier = tiers.get(name)
            figures[f"{prefix}Size"] = str(tier.statistics.waiting if tier else 0)
            figures[f"{prefix}Capacity"] = str(tier.capacity if tier else 0)
            pool = tiers.get(_POOLS.get(name, name))
            head_wait_seconds = max(
                self.oldest_wait_seconds(_TIER_CODES[name]), pool.head_wait_seconds() if pool else 0.0
            )
            figures[f"{prefix}HeadWaitTimeMills"] = str(int(head_wait_seconds * 1000))
        ends = tiers.get(_TRANSACTION_TIER)
        figures["EndTransactionQueueSize"] = str(ends.statistics.waiting if ends else 0)
        figures["EndTransactionThreadPoolQueueCapacity"] = str(ends.capacity if ends else 0)
        return figures

    def _capacity(self) -> str:
        disk = os.statvfs(self._settings.store_path_root_dir)
        total, free = disk.f_blocks * disk.f_frsize, disk.f_bfree * disk.f_frsize
        return f"Total : {_readable_bytes(total)}, Free : {_readable_bytes(free)}."


def _readable_bytes(count: int) -> str:
    """Format a size as Apache's MixAll.humanReadableByteCount does, e.g. `1.5 GiB`."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} EiB"
