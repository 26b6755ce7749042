"""Settings of the flow control of cold reads."""

from __future__ import annotations

from rmq_remoting.daemon.settings import ByteCount, JavaBoolean, SettingsGroup, live, setting


class ColdDataSettings(SettingsGroup):
    """Flow control of cold reads

    In effect with coldDataFlowControlEnable. Thresholds are bytes of cold messages within five seconds.
    """

    cg_cold_read_threshold_bytes: ByteCount = live(
        3_145_728,
        "cgColdReadThreshold",
        "Cold bytes from which on a group is slowed down, unless it has a threshold of its own.",
        minimum=0,
    )
    global_cold_read_threshold_bytes: ByteCount = live(
        104_857_600,
        "globalColdReadThreshold",
        "Cold bytes of all groups from which on each group that reads cold messages is slowed down.",
        minimum=0,
    )
    cold_ctr_strategy_enable: JavaBoolean = live(
        False,
        "coldCtrStrategyEnable",
        "Adapt the thresholds of groups: raise them while all groups together read little, and lower them "
        "again.",
    )
    use_pid_cold_ctr_strategy: JavaBoolean = setting(
        True,
        "usePIDColdCtrStrategy",
        "Adapt by the last ten sums of all groups; off: by the current one alone.",
    )
