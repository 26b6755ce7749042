"""Whether a table of the master may be older than the one taken over before, because it was lost there."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq_remoting.bodies.topic import DataVersion

    from .followed_versions import FollowedVersions

log = logging.getLogger("rmq.broker.replication")


class TableAge:
    """The age of one table of the master."""

    def __init__(self, name: str, versions: FollowedVersions, changed: Callable[[], None]) -> None:
        """`changed` is called after `versions` has changed."""
        self._name = name
        self._versions = versions
        self._changed = changed
        self._told = False

    def newer(self, version: DataVersion) -> DataVersion | None:
        """Return the version to take over; None if it is older than the one before."""
        if self._versions.is_older(self._name, version):
            return None
        if self._versions.taken_over(self._name, version):
            self._changed()
        self._told = False
        return version

    def tell(self, taken: DataVersion | None, version: DataVersion, kept: Sequence[str]) -> None:
        """Log once that nothing is deleted here although the master lacks it."""
        if taken is None and kept and not self._told:
            self._told = True
            log.warning(
                "%s not deleted although the master lacks them names=%s cause=the master's table is older "
                "than the one taken over before counter=%d; if they were deleted on purpose, delete them "
                "on this replica",
                self._name,
                ", ".join(kept[:20]),
                version.counter,
            )
