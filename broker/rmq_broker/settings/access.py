"""Settings of access control that only the broker has."""

from __future__ import annotations

import os

from rmq_remoting.daemon.settings import (
    JavaBoolean,
    OptionalPath,
    SecondsOrZero,
    SettingsGroup,
    setting,
)


class BrokerAccessSettings(SettingsGroup):
    """Access control in the broker alone"""

    migrate_auth_from_v1_enabled: JavaBoolean = setting(
        False,
        "migrateAuthFromV1Enabled",
        "At start, create the accounts of `conf/plain_acl.yml` and `conf/acl/*.yml` below rocketmqHome as "
        "users with rules, where there is no user of the name.",
    )
    rocketmq_home: OptionalPath = setting(
        key="rocketmqHome",
        meaning="Folder in whose `conf` the files of migrateAuthFromV1Enabled are.",
        default_factory=lambda: os.environ.get("ROCKETMQ_HOME", ""),
        default_text="${ROCKETMQ_HOME}",
    )
    signature_replay_window_seconds: SecondsOrZero = setting(
        0,
        "signatureReplayWindowSeconds",
        "Serve each signed send once, and only within this time of its bornTimestamp by the broker's clock; "
        "0: recorded sends may be sent again. Needs authenticationEnabled.",
        maximum=3600,
        ours=True,
    )
