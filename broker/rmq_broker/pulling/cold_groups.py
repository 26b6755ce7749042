"""Cold bytes that consumer groups read, and the thresholds from which on the groups are slowed down.

Source: Apache RocketMQ 5.3.3, ColdDataCgCtrService. The counts begin anew every five seconds, so a threshold
is a rate. A group that has read nothing cold for a minute is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.cold_data import ColdDataFlowControlInfo, ColdReadAccount

from ..groups.names import is_system_puller
from .cold_strategies import PidStrategy, SimpleStrategy

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..settings.cold_data import ColdDataSettings
    from ..store.api import PullSettings
    from .cold_strategies import ColdStrategy

PERIOD_SECONDS: Final = 5.0
# Most groups with thresholds of their own.
MAX_THRESHOLDS: Final = 10_000

_FORGOTTEN_AFTER_MS: Final = 60_000
_RAISE: Final = 1.5
_LOWER: Final = 0.8
_LOWERED_AT_ONCE: Final = 3
# Ends the name under which Apache shows an adapted threshold.
_ADAPTED: Final = "||adaptive"


@dataclass(slots=True)
class Account:
    """Cold reads of one group."""

    created_at_ms: int
    last_read_ms: int = 0
    period_bytes: int = 0


class ColdReadGroups:
    """Counts cold reads by group; belongs to the event loop."""

    def __init__(self, pulls: PullSettings, settings: ColdDataSettings, now_ms: ClockMs) -> None:
        self.total_bytes = 0
        self._pulls = pulls
        self._settings = settings
        self._now_ms = now_ms
        self._strategy: ColdStrategy = (
            PidStrategy() if settings.use_pid_cold_ctr_strategy else SimpleStrategy()
        )
        self.accounts: dict[str, Account] = {}
        self._period_bytes = 0
        # Thresholds in bytes, by group: those that an administrator has set, and adapted ones.
        self._thresholds: dict[str, int] = {}
        self._adapted: dict[str, int] = {}

    def count(self, group: str, cold_bytes: int) -> None:
        """Count cold bytes that a group has read; the broker's own groups are free."""
        if is_system_puller(group):
            return
        now_ms = self._now_ms()
        account = self.accounts.get(group)
        if account is None:
            account = self.accounts[group] = Account(now_ms)
        account.period_bytes += cold_bytes
        account.last_read_ms = now_ms
        self._period_bytes += cold_bytes
        self.total_bytes += cold_bytes

    def is_over(self, group: str) -> bool:
        """Whether a group has read more than its threshold, or all groups together more than theirs."""
        if not self._pulls.cold_data_flow_control_enable or is_system_puller(group):
            return False
        account = self.accounts.get(group)
        if account is None:
            return False
        return (
            account.period_bytes >= self.threshold(group)
            or self._period_bytes >= self._settings.global_cold_read_threshold_bytes
        )

    def threshold(self, group: str) -> int:
        """Return the threshold of a group in bytes per period."""
        own = self._thresholds.get(group)
        if own is None and self._settings.cold_ctr_strategy_enable:
            own = self._adapted.get(group)
        return self._settings.cg_cold_read_threshold_bytes if own is None else own

    @property
    def with_threshold(self) -> frozenset[str]:
        """The groups with thresholds of their own."""
        return frozenset(self._thresholds)

    def set_thresholds(self, thresholds: dict[str, int]) -> None:
        """Give groups thresholds of their own, in bytes per period."""
        self._thresholds.update(thresholds)

    def remove_threshold(self, group: str) -> None:
        """Let the common threshold apply to a group, which need not have one of its own."""
        if group.endswith(_ADAPTED):
            self._adapted.pop(group.removesuffix(_ADAPTED), None)
        else:
            self._thresholds.pop(group, None)

    def info(self) -> ColdDataFlowControlInfo:
        """Return all counts and thresholds."""
        adapted = {group + _ADAPTED: threshold for group, threshold in self._adapted.items()}
        return ColdDataFlowControlInfo(
            cg_cold_read_threshold=self._settings.cg_cold_read_threshold_bytes,
            config_table=self._thresholds | adapted,
            global_acc=self._period_bytes,
            global_cold_read_threshold=self._settings.global_cold_read_threshold_bytes,
            runtime_table={
                group: ColdReadAccount(
                    cold_acc=account.period_bytes,
                    create_time_ms=account.created_at_ms,
                    last_cold_read_time_ms=account.last_read_ms,
                )
                for group, account in self.accounts.items()
            },
        )

    # --- periods ---

    def end_period(self) -> None:
        """Begin to count anew, and adapt thresholds; called every `PERIOD_SECONDS`."""
        if self._settings.cold_ctr_strategy_enable:
            limit_bytes = self._settings.global_cold_read_threshold_bytes
            self._strategy.period_ended(self._period_bytes, limit_bytes)
            self._adapt(self._period_bytes > limit_bytes)
        else:
            self._adapted.clear()
        forgotten_before_ms = self._now_ms() - _FORGOTTEN_AFTER_MS
        for group, account in list(self.accounts.items()):
            account.period_bytes = 0
            if account.last_read_ms <= forgotten_before_ms:
                del self.accounts[group]
                self._adapted.pop(group, None)
        self._period_bytes = 0

    def _adapt(self, is_over_in_all: bool) -> None:
        if self._strategy.may_raise and not is_over_in_all:
            for group, account in self.accounts.items():
                threshold = self.threshold(group)
                if group not in self._thresholds and account.period_bytes >= threshold:
                    self._adapted[group] = int(threshold * _RAISE)
        if self._strategy.must_lower:
            highest = sorted(self._adapted, key=lambda group: self._adapted[group], reverse=True)
            for group in highest[:_LOWERED_AT_ONCE]:
                lowered = int(self._adapted[group] * _LOWER)
                self._adapted[group] = max(lowered, self._settings.cg_cold_read_threshold_bytes)
