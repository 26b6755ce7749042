"""The smallest living broker id of this broker's group, and whether this broker may act as the master.

Source: Apache RocketMQ 5.3.3, BrokerController.updateMinBroker, onMinBrokerChange.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from rmq_remoting.bodies.route import MASTER_BROKER_ID

log = logging.getLogger("rmq.broker.acting")

# For so long a replica leaves everything to a master that has announced its start.
_MASTER_STARTS_SECONDS: Final = 30.0
_KEEPS_SECONDS: Final = 10.0
# A stop of the master's services: messages under way, and a flush.
_STOP_SECONDS: Final = 15.0


class SmallestBroker:
    """What name servers tell about the group; belongs to the loop's thread. `changed`: look again now."""

    def __init__(self, broker_id: int, *, is_enabled: bool, clock: Callable[[], float]) -> None:
        """`is_enabled`: the setting `enableSlaveActingMaster`. `clock` counts seconds."""
        self.broker_id: int | None = None  # unknown until a name server has told it
        self.address = ""
        self.changed = asyncio.Event()
        self._own_id = broker_id
        self._is_enabled = is_enabled
        self._clock = clock
        self._master_starts_until = 0.0
        self._keeps_until = 0.0
        self._acts = False
        self._acts_not = asyncio.Event()
        self._acts_not.set()

    @property
    def may_act(self) -> bool:
        """Whether this is a replica with the smallest id, and its master is not about to start."""
        if not self._is_enabled or self._own_id == MASTER_BROKER_ID:
            return False
        return self.broker_id == self._own_id and self._clock() >= self._master_starts_until

    @property
    def keeps_own_progress(self) -> bool:
        """Whether the master has not taken over what this replica has delivered.

        A master that has announced its start reads the progress of its replicas, and registers afterwards.
        One of Apache's may be registered before that, so a replica waits a while after it has acted, too.
        """
        now = self._clock()
        is_starting = self.broker_id != MASTER_BROKER_ID and now < self._master_starts_until
        return self._acts or is_starting or now < self._keeps_until

    @property
    def acts(self) -> bool:
        """Whether this broker acts as the master now."""
        return self._acts

    @acts.setter
    def acts(self, acts: bool) -> None:
        self._acts = acts
        if acts:
            self._acts_not.clear()
        elif not self._acts_not.is_set():
            self._keeps_until = self._clock() + _KEEPS_SECONDS
            self._acts_not.set()

    def told(self, broker_id: int, address: str) -> bool:
        """Take note of the smallest id; return whether it is another one than before."""
        if not self._is_enabled or self._own_id == MASTER_BROKER_ID or broker_id == self.broker_id:
            return False
        log.info(
            "smallest broker id of the group changed id=%d address=%s before=%s",
            broker_id,
            address or "?",
            self.broker_id,
        )
        self.broker_id, self.address = broker_id, address
        self.changed.set()
        return True

    def members_are(self, addresses: Mapping[int, str]) -> bool:
        """Take note of the living members of the group; return whether the smallest id has changed.

        No member at all tells nothing: the name server has just started.
        """
        if not addresses:
            return False
        smallest = min(addresses)
        return self.told(smallest, addresses[smallest])

    def master_starts(self) -> None:
        """Leave everything to the master for half a minute: it has announced its start."""
        self._master_starts_until = self._clock() + _MASTER_STARTS_SECONDS
        self.changed.set()

    async def acts_no_more(self) -> None:
        """Return once this broker does not act, as after `master_starts`."""
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._acts_not.wait()
        except TimeoutError:
            log.warning("acting has not ended within %.0f s after the master's announcement", _STOP_SECONDS)
