"""Metrics of the flow control of cold reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmq_remoting.daemon.exposition import Family, counter

if TYPE_CHECKING:
    from .cold_flow_control import ColdFlowControl
    from .cold_groups import ColdReadGroups


class ColdReadCollector:
    """Cold messages that were pulled, and pulls that were slowed down for it."""

    def __init__(self, groups: ColdReadGroups, flow: ColdFlowControl) -> None:
        self._groups = groups
        self._flow = flow

    def collect(self) -> Iterable[Family]:
        """Return all metric families of cold reads."""
        yield counter(
            "rmq_cold_read_bytes_total",
            "Bytes of cold messages that groups have pulled, with coldDataFlowControlEnable.",
            self._groups.total_bytes,
        )
        yield counter(
            "rmq_cold_pulls_refused_total",
            "Pulls answered SYSTEM_BUSY because their group reads too many cold messages.",
            self._flow.refused,
        )
        yield counter(
            "rmq_cold_pulls_delayed_total",
            "Pulls held because their group reads too many cold messages.",
            self._flow.delayed,
        )
