"""The replicas of a master with a controller: its in-sync set decides which messages are replicated.

The controller elects a new master from the in-sync set alone. A message that all its members have is
therefore never lost by a failover. Source: Apache RocketMQ 5.3.3, AutoSwitchHAService.computeConfirmOffset,
GroupTransferService.
"""

from __future__ import annotations

from collections.abc import Iterable

from .replica_set import UNKNOWN, ReplicaPosition, ReplicaSet


class InSyncReplicas(ReplicaSet):
    """Positions by broker id.

    `members` is the set that the controller knows. `counted` has those besides that it may know already: a
    change is under way. Messages wait for all of `counted`, so that whichever of the two sets an election
    uses has them.
    """

    own_id = 0
    members: frozenset[int] = frozenset()
    counted: frozenset[int] = frozenset()

    def set_members(self, own_id: int, members: Iterable[int], counted: Iterable[int] = ()) -> None:
        """Change the set; `counted` are members that are being added or removed."""
        self.own_id = own_id
        self.members = frozenset(members) | {own_id}
        self.counted = self.members | frozenset(counted)
        self._changed()

    def in_sync(self) -> list[ReplicaPosition]:
        """Return the connected members of the set, the furthest first."""
        found = [position for position in self.positions if position.broker_id in self.members]
        found.sort(key=lambda position: position.acknowledged, reverse=True)
        return found

    def has_whole_log(self, position: ReplicaPosition) -> bool:
        """Whether a replica lacks nothing of the log."""
        return position.acknowledged >= self._log_end()

    def required(self, in_sync_brokers: int) -> int:
        """Return how many brokers have to have a message, this one included."""
        if self._settings.waits_for_in_sync_set:
            return len(self.counted)
        return self._settings.required_replicas

    def _acknowledged(self) -> list[int]:
        """Return how far each counted replica has the log, the furthest first."""
        known = {position.broker_id: position.acknowledged for position in self.positions}
        others = self.counted - {self.own_id}
        return sorted((known.get(broker_id, UNKNOWN) for broker_id in others), reverse=True)
