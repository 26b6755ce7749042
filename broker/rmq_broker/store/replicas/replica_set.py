"""The replicas that follow this log, how far each has acknowledged it, and the sends that wait for them.

Source: Apache RocketMQ 5.3.3, DefaultHAService, GroupTransferService, CommitLog.handleHA. Apache's broker
looks at each send's wait in a thread of its own, one after another. Here one acknowledgement completes all
waits that it covers, and it also decides what consumers see: `confirmed_offset`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq_remoting.repeated_event import RepeatedEvent

from ..durability import Durability, DurabilityListener
from ..offset_waits import OffsetWaits

if TYPE_CHECKING:
    from ..settings import ReplicationSettings
    from ..write_health import WriteHealth

log = logging.getLogger("rmq.store.replicas")

_REPLICAS: Final = "replicas"  # a cause of refusing messages
# A replica that hangs lets every send time out.
_LOG_SECONDS: Final = 10.0
# In place of an offset: a replica that is expected, and counts for no message.
UNKNOWN: Final = -1


@dataclass(slots=True, eq=False)
class ReplicaPosition:
    """One connected replica.

    name           its address, for logs and metrics
    acknowledged   log offset up to which the replica has the log, as it says
    broker_id      its id; None without a controller, where a replica does not tell
    may_be_double  a replica of the same host connected later, and this one was silent since: both may be one
    """

    name: str
    acknowledged: int
    broker_id: int | None = None
    may_be_double: bool = False

    @property
    def host(self) -> str:
        """The host of its address."""
        return self.name.rpartition(":")[0]


@dataclass(slots=True)
class ReplicaStatistics:
    """Plain counters for metrics; they belong to the event loop's thread."""

    acknowledged: int = 0  # waits that ended with DURABLE
    timed_out: int = 0
    without_replica: int = 0


class ReplicaSet:
    """Positions of the connected replicas; belongs to the event loop's thread.

    A message is replicated once `required` brokers have it, this one included. While fewer than that are
    connected and in sync, this broker goes on alone: sends are answered NO_REPLICA, and consumers see
    messages at once; with fewer than `minInSyncReplicas` messages are refused, and those that are stored
    already stay invisible. A replica is in sync while it lacks less than `haMaxGapNotInSync` bytes.
    """

    def __init__(
        self,
        settings: ReplicationSettings,
        log_end: Callable[[], int],
        health: WriteHealth,
        on_confirmed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`log_end` returns the end of the log. `on_confirmed` is called after `confirmed_offset` rose.

        `health` refuses messages while fewer than `minInSyncReplicas` brokers are in sync.
        """
        self._health = health
        self._settings = settings
        self._log_end = log_end
        self._on_confirmed = on_confirmed
        self._positions: tuple[ReplicaPosition, ...] = ()
        self._growth_listeners: tuple[Callable[[], None], ...] = ()
        self._waits = OffsetWaits(lambda: settings.slave_timeout_ms, self._time_up, clock)
        self._is_scheduled = False
        self._is_running = False
        self._is_short = False
        self._is_deposed = False
        self._timed_out = RepeatedEvent(_LOG_SECONDS, clock)
        self._replicated = 0  # the highest offset so far that enough replicas had
        self.statistics = ReplicaStatistics()

    # --- life ---

    @property
    def is_synchronous(self) -> bool:
        """Whether sends wait for replicas: the broker is SYNC_MASTER, and started."""
        return self._is_running

    def start(self) -> None:
        """Let sends wait, if the broker is SYNC_MASTER; in a running event loop."""
        self._is_running = self._settings.is_sync_master
        self._changed()

    def stop(self) -> None:
        """Let no send wait any more. Those that wait get REPLICA_TIMED_OUT, consumers may see everything."""
        self._is_running = False
        self._waits.stop()
        self._complete(len(self._waits), Durability.REPLICA_TIMED_OUT)

    def depose(self) -> None:
        """Acknowledge nothing any more: another broker is the master. Sends are answered at once."""
        self._is_deposed = True
        self._changed()

    def elected(self) -> None:
        """Acknowledge messages, also after `depose`."""
        self._is_deposed = False
        self._changed()

    # --- replicas ---

    @property
    def positions(self) -> tuple[ReplicaPosition, ...]:
        """The connected replicas."""
        return self._positions

    def join(self, name: str, offset: int, broker_id: int | None = None) -> ReplicaPosition:
        """Add a replica that has the log up to `offset`.

        Without a controller replicas tell no id. An earlier connection of the same host may be that of the
        same replica, and half open. What it acknowledged counts again once the replica is heard on it.
        """
        position = ReplicaPosition(name, offset, broker_id)
        for other in self._positions:
            other.may_be_double = other.may_be_double or other.host == position.host
        self._positions += (position,)
        self._changed()
        return position

    def leave(self, position: ReplicaPosition) -> None:
        """Remove a replica whose connection ended."""
        self._positions = tuple(each for each in self._positions if each is not position)
        self._changed()

    def acknowledge(self, position: ReplicaPosition, offset: int) -> None:
        """Note how far a replica has the log."""
        position.acknowledged = offset
        position.may_be_double = False
        self._changed()

    def in_sync(self) -> list[ReplicaPosition]:
        """Return the replicas that are in sync, the furthest first."""
        least = self._log_end() - self._settings.ha_max_gap_not_in_sync_bytes
        found = [position for position in self._positions if position.acknowledged > least]
        found.sort(key=lambda position: position.acknowledged, reverse=True)
        return found

    def required(self, in_sync_brokers: int) -> int:
        """Return how many brokers have to have a message, this one included."""
        settings = self._settings
        needed = settings.required_replicas
        if settings.enable_auto_in_sync_replicas:
            needed = max(min(needed, in_sync_brokers), settings.min_in_sync_replicas)
        return needed

    # --- growth of the log ---

    def add_growth_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` after the log has grown, once for all appends of an iteration of the loop."""
        self._growth_listeners += (listener,)

    def appended(self) -> bool:
        """Note that the log has grown; return whether messages wait for replicas.

        The appender calls this for each message, so it does the least.
        """
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._grown)
        return self._is_running

    def _grown(self) -> None:
        self._is_scheduled = False
        for listener in self._growth_listeners:
            listener()
        if self._is_running:
            self._changed()

    # --- waits ---

    @property
    def confirmed_offset(self) -> int:
        """The log offset up to which consumers may see messages, as far as replicas decide it."""
        return self._replicated if self._is_running else self._log_end()

    @property
    def waiting(self) -> int:
        """Number of listeners that wait for replicas now."""
        return len(self._waits)

    def when_replicated(self, offset: int, listener: DurabilityListener) -> None:
        """Call `listener` once enough replicas have the log up to `offset`, the end of the newest record.

        The call is made in a later iteration of the event loop.
        """
        self._waits.add(offset, listener)
        self.appended()

    def _changed(self) -> None:
        """Complete waits, and let consumers see what enough replicas have."""
        if not self._is_running:
            return
        if self._is_deposed:
            self._complete(len(self._waits), Durability.REPLICA_TIMED_OUT)
            return
        acknowledged = self._acknowledged()
        brokers = 1 + len(acknowledged)
        self._check_minimum(brokers)
        needed = self.required(brokers)
        is_enough = brokers >= needed
        if needed <= 1 or (not is_enough and not self._is_short):
            replicated = self._log_end()
        elif is_enough:
            replicated = acknowledged[needed - 2]
        else:
            replicated = self._replicated
        has_risen = replicated > self._replicated
        if has_risen:
            self._replicated = replicated
        # Producers get their answers first: they wait, and send again.
        if is_enough:
            self._complete(self._waits.count_up_to(self._replicated), Durability.DURABLE)
        else:
            self._complete(len(self._waits), Durability.NO_REPLICA)
        if has_risen:
            self._on_confirmed()

    def _acknowledged(self) -> list[int]:
        """Return how far each replica that counts has the log, the furthest first."""
        found = [UNKNOWN if each.may_be_double else each.acknowledged for each in self.in_sync()]
        found.sort(reverse=True)
        return found

    def _check_minimum(self, in_sync_brokers: int) -> None:
        least = self._settings.min_in_sync_replicas
        is_short = in_sync_brokers < least
        if is_short == self._is_short:
            return
        self._is_short = is_short
        if is_short:
            reason = f"in-sync replicas not enough: {in_sync_brokers} of minInSyncReplicas={least} brokers"
            self._health.refuse(_REPLICAS, reason)
            log.error("messages are refused: %s", reason)
        else:
            self._health.allow(_REPLICAS)
            log.info("enough replicas are in sync brokers=%d; messages are accepted", in_sync_brokers)

    def _complete(self, count: int, durability: Durability) -> None:
        """Call the first `count` listeners."""
        statistics = self.statistics
        match durability:
            case Durability.DURABLE:
                statistics.acknowledged += count
            case Durability.NO_REPLICA:
                statistics.without_replica += count
            case _:
                statistics.timed_out += count
        self._waits.complete(count, durability)

    def _time_up(self, count: int) -> None:
        if sends := self._timed_out.occurred(count):
            log.warning(
                "replication timed out sends=%d timeout_ms=%d replicas=%d; answered FLUSH_SLAVE_TIMEOUT",
                sends,
                self._settings.slave_timeout_ms,
                len(self._positions),
            )
        self._complete(count, Durability.REPLICA_TIMED_OUT)
