"""What the controller has decided about this broker's group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SyncState:
    """The in-sync set: brokers with every acknowledged message; `epoch` grows with each change."""

    members: frozenset[int]
    epoch: int


@dataclass(frozen=True, slots=True)
class Role:
    """The master of the group, as this broker was told last.

    own_id, master_id   ids of brokers, as the controller gave them
    master_address      where clients reach the master, host:port
    epoch               the master's number
    sync_state          the in-sync set when the master was elected, or later
    """

    own_id: int
    master_id: int
    master_address: str
    epoch: int
    sync_state: SyncState

    @property
    def is_master(self) -> bool:
        """Whether this broker is the master."""
        return self.own_id == self.master_id


@dataclass(frozen=True, slots=True)
class LogState:
    """The log as a controller compares it: newest epoch, end, and confirmed offset; -1: not known."""

    epoch: int = -1
    end: int = -1
    confirmed: int = -1
