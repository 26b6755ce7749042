"""Metrics of a broker with a controller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmq_remoting.daemon.exposition import Family, counter, gauge

if TYPE_CHECKING:
    from .member import GroupMember


class ControllerCollector:
    """The role, and whether the controller answers."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member

    def collect(self) -> Iterable[Family]:
        """Return all families."""
        member = self._member
        role = member.role
        yield gauge(
            "rmq_controller_is_master",
            "1: the controller has elected this broker; 0: another one, or none.",
            int(role is not None and role.is_master),
        )
        yield gauge(
            "rmq_controller_epoch",
            "Number of the present master; -1: none is known.",
            -1 if role is None else role.epoch,
        )
        yield gauge(
            "rmq_controller_in_sync_members",
            "Brokers of the in-sync set, as this broker was told last; up to date on the master.",
            0 if role is None else len(role.sync_state.members),
        )
        yield gauge(
            "rmq_controller_answers",
            "1: the controller answered the last request; 0: it is away, or refuses this broker.",
            int(not member.problem),
        )
        yield counter(
            "rmq_controller_role_changes_total", "Masters that this broker was told.", member.role_changes
        )
        yield gauge(
            "rmq_controller_role_change_seconds",
            "How long this broker took for the last change of its role.",
            member.change_seconds,
        )
