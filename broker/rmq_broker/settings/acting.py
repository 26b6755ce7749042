"""Settings of a replica that acts as the master while its master is away."""

from __future__ import annotations

from rmq_remoting.daemon.settings import JavaBoolean, Milliseconds, SettingsGroup, live, setting


class ActingSettings(SettingsGroup):
    """Slave acting master"""

    enable_remote_escape: JavaBoolean = live(
        False,
        "enableRemoteEscape",
        "Store the messages of an acting replica (due delayed and timed messages, retries of popped "
        "messages, half messages) with another master of the cluster. Off: it delivers none of them.",
    )
    skip_pre_online: JavaBoolean = setting(
        False,
        "skipPreOnline",
        "A master that starts does not take over from its replicas what they have delivered meanwhile.",
    )
    sync_broker_member_group_period_ms: Milliseconds = setting(
        1000,
        "syncBrokerMemberGroupPeriod",
        "Period in which a broker asks the name servers for the members of its group.",
    )
