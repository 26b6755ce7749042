"""The in-sync set of a master, which it changes by asking the controller.

A replica that has the log of a moment ago is counted at once: messages wait for it from then on. It is
proposed to the controller when it has every message that was acknowledged before. A replica that is away, or
lags for too long, is taken out. Until the controller has agreed messages wait for it, too.

Apache's master proposes a replica only if it has the whole log at that moment, and counts one as caught up
that has acknowledged all that was sent until then. Neither may ever happen under load (Apache RocketMQ 5.3.3,
AutoSwitchHAService, AutoSwitchHAConnection).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode

from ..controller.controllers import ControllerRefused
from ..controller.member import EXPECTED

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..controller.member import GroupMember
    from ..controller.role import Role, SyncState
    from ..settings.broker import BrokerSettings
    from ..store.api import InSyncReplicas, ReplicaPosition

log = logging.getLogger("rmq.broker.controller")

_RETRY_SECONDS: Final = 1.0
# A replica further behind than this does not join: sends would wait for it, and end with slaveTimeout.
_JOINS_BEHIND_MS: Final = 1000
# How long a member of the set, as the controller tells it, may take to connect.
_CONNECT_MS: Final = 3000
_DEPOSED: Final = frozenset(
    {ResponseCode.CONTROLLER_INVALID_MASTER, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH}
)


class InSyncSet:
    """Belongs to the loop's thread; only a master has one."""

    def __init__(
        self,
        settings: BrokerSettings,
        member: GroupMember,
        role: Role,
        replicas: InSyncReplicas,
        steady_ms: ClockMs,
    ) -> None:
        self._settings = settings
        self._member = member
        self._own_id = role.own_id
        self._replicas = replicas
        self._steady_ms = steady_ms
        self._began_ms = steady_ms()
        self._caught_up_ms: dict[int, int] = {}
        self._joining: frozenset[int] = frozenset()
        # Members of sets that the controller was asked for, and may have taken over, without an answer yet.
        self._asked: frozenset[int] = frozenset()
        self._wake = asyncio.Event()
        self.state: SyncState = role.sync_state
        self._count()

    # --- events ---

    def caught_up(self, position: ReplicaPosition, *, with_epoch: bool, behind_ms: int = 0) -> None:
        """Note that a replica has acknowledged the whole log of `behind_ms` ago.

        `with_epoch`: its log reaches into this master's epoch.
        """
        broker_id = position.broker_id
        if broker_id is None:
            return
        caught_up_ms = self._steady_ms() - behind_ms
        self._caught_up_ms[broker_id] = max(self._caught_up_ms.get(broker_id, caught_up_ms), caught_up_ms)
        if broker_id in self.state.members or not with_epoch or behind_ms > _JOINS_BEHIND_MS:
            return
        if broker_id not in self._joining:
            self._joining |= {broker_id}
            self._count()
        if self._has_all(position):
            self._wake.set()

    def left(self, position: ReplicaPosition) -> None:
        """Note that a replica's connection ended."""
        broker_id = position.broker_id
        if broker_id is None or any(each.broker_id == broker_id for each in self._replicas.positions):
            return  # it has connected again already
        self._joining -= {broker_id}
        self._caught_up_ms.pop(broker_id, None)
        self._count()
        self._wake.set()

    def told(self, state: SyncState) -> None:
        """Take over the controller's set, if it is newer."""
        if state.epoch > self.state.epoch:
            self.state = state
            # No older request can succeed any more: each names the epoch of the set that it replaces.
            self._asked = frozenset()
            self._joining -= state.members
            self._count()

    # --- changes ---

    async def run(self) -> None:
        """Propose changes until cancelled."""
        while True:
            await self._pause(self._settings.check_sync_state_set_period_ms / 1000)
            wanted = self._wanted()
            if wanted != self.state.members and not await self._propose(wanted):
                await asyncio.sleep(_RETRY_SECONDS)
                self._wake.set()

    async def _propose(self, wanted: frozenset[int]) -> bool:
        """Ask the controller for a set; return False if it is to be asked again."""
        self._asked |= wanted
        self._count()
        before = self.state
        try:
            state = await self._member.alter_sync_state(wanted, before)
        except ControllerRefused as error:
            log.info("in-sync set not changed wanted=%s cause=%s", sorted(wanted), error)
            if self.state is before and error.code != ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH:
                self._asked = frozenset()
                self._count()
            # The answer to the next look may have another set, or another master.
            self._member.wake()
            return error.code in _DEPOSED
        except EXPECTED as error:
            log.warning("in-sync set not changed wanted=%s cause=%s; retried", sorted(wanted), error)
            return False
        log.info("in-sync set changed members=%s epoch=%d", sorted(state.members), state.epoch)
        self.told(state)
        return True

    def _wanted(self) -> frozenset[int]:
        now_ms = self._steady_ms()
        positions = {each.broker_id: each for each in self._replicas.positions}
        wanted = {self._own_id}
        for broker_id in self.state.members - wanted:
            position = positions.get(broker_id)
            if position is None:
                if now_ms - self._began_ms < _CONNECT_MS and broker_id not in self._caught_up_ms:
                    wanted.add(broker_id)
                continue
            if self._replicas.has_whole_log(position):
                self._caught_up_ms[broker_id] = now_ms
            lag_ms = now_ms - self._caught_up_ms.get(broker_id, self._began_ms)
            if lag_ms <= self._settings.ha_max_time_slave_not_catchup_ms:
                wanted.add(broker_id)
        for broker_id in self._joining:
            position = positions.get(broker_id)
            if position is not None and self._has_all(position):
                wanted.add(broker_id)
        return frozenset(wanted)

    def _has_all(self, position: ReplicaPosition) -> bool:
        """Whether a replica has every message that was acknowledged, or seen by a consumer."""
        return position.acknowledged >= self._replicas.confirmed_offset

    def _count(self) -> None:
        self._replicas.set_members(self._own_id, self.state.members, self._joining | self._asked)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()
