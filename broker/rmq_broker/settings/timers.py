"""Settings of timed messages."""

from __future__ import annotations

from rmq_remoting.daemon.settings import (
    ByteCount,
    Count,
    JavaBoolean,
    JavaInt,
    Milliseconds,
    Seconds,
    SettingsGroup,
    live,
    setting,
)


class TimerSettings(SettingsGroup):
    """Timed messages"""

    timer_wheel_enable: JavaBoolean = live(
        True, "timerWheelEnable", "Accept timed messages; those that wait already are delivered in any case."
    )
    timer_max_delay_seconds: Seconds = live(
        259_200,
        "timerMaxDelaySec",
        "Longest delay of a timed message, and longest invisible time of popped messages.",
    )
    timer_precision_ms: JavaInt = setting(
        1000,
        "timerPrecisionMs",
        "Length of a slot of the timer wheel: a message is delivered at the end of the slot in which "
        "it is due, never early.",
        unit="ms",
        minimum=10,
        maximum=60_000,
    )
    timer_roll_window_slots: JavaInt = setting(
        172_800,
        "timerRollWindowSlot",
        "A message with a longer delay is written to the log again while it waits, so that it is not "
        "deleted with old files; outside of 2 to 604740 this is 604740.",
        unit="times timerPrecisionMs",
    )
    timer_congest_num_each_slot: Count = live(
        2**31 - 1,
        "timerCongestNumEachSlot",
        "Messages in one slot above which some are refused; at twice the number all are refused.",
        unit="messages",
    )
    timer_log_file_bytes: ByteCount = setting(
        100 * 1024 * 1024,
        "mappedFileSizeTimerLog",
        "Size of a file of the timer log; existing files keep their size.",
        minimum=4096,
    )
    timer_flush_interval_ms: Milliseconds = live(
        1000, "timerFlushIntervalMs", "Period in which the timer wheel and the timer log are written to disk."
    )
    timer_stop_enqueue: JavaBoolean = live(
        False,
        "timerStopEnqueue",
        "Suspend the entry of timed messages into the timer wheel; they stay in the timer topic's queue.",
    )
    timer_stop_dequeue: JavaBoolean = live(False, "timerStopDequeue", "Suspend the delivery of due messages.")
    recall_message_enable: JavaBoolean = live(
        False, "recallMessageEnable", "Allow producers to recall timed messages that are not due yet."
    )
    allow_recall_when_broker_not_writeable: JavaBoolean = live(
        True,
        "allowRecallWhenBrokerNotWriteable",
        "Allow that also while brokerPermission forbids writing.",
    )
