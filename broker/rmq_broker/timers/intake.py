"""The way of timed messages into the timer wheel, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..delivery.timer_admission import TimerAdmission
from .counts import TimerCounts
from .entering import TimerEntering
from .pending import PendingTimers
from .timer_log import TimerLog
from .wheel import TimerWheel

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..settings.timers import TimerSettings
    from ..store.api import MessageStore, StoreSettings


@dataclass(frozen=True, slots=True)
class TimerIntake:
    """Admission of timed messages, their entry into the wheel, and the wheel itself.

    Everything that stores messages needs the intake, and the delivery of due messages needs the writer of
    messages: so the intake is built before the writer, and `TimerService` after it.
    """

    admission: TimerAdmission
    entering: TimerEntering
    pending: PendingTimers
    counts: TimerCounts


def build_timer_intake(
    settings: TimerSettings, store_settings: StoreSettings, store: MessageStore, now_ms: ClockMs
) -> TimerIntake:
    """Build the intake over the files `timerwheel`, `timerlog` and `timercheck`; nothing is opened yet."""
    root = store_settings.store_path_root_dir
    counts = TimerCounts(now_ms)
    pending = PendingTimers(
        TimerWheel(root / "timerwheel", settings.timer_precision_ms),
        TimerLog(root / "timerlog", settings.timer_log_file_bytes),
        store_settings.config_dir / "timercheck",
        settings.timer_roll_window_slots,
        now_ms,
    )
    entering = TimerEntering(store, pending, counts, now_ms)
    admission = TimerAdmission(settings, pending.waiting_at, entering.announced.announce, now_ms)
    return TimerIntake(admission, entering, pending, counts)
