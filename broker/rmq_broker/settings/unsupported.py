"""Values of broker settings that are refused because the broker lacks the feature that they ask for.

Keys and meanings: Apache RocketMQ 5.3.3, AuthConfig, BrokerConfig, MessageStoreConfig.
"""

from __future__ import annotations

from typing import Final

from rmq_remoting.daemon.unsupported_settings import (
    METRICS,
    NOT_EMPTY,
    TRUE,
    UnsupportedSetting,
    other_than,
    several,
)

_USE_VERSION_2: Final = (
    "remove the key and set authenticationEnabled=true and authorizationEnabled=true; "
    "migrateAuthFromV1Enabled=true takes over the accounts"
)
_SINGLE_MASTER: Final = (
    "remove the key, and set brokerRole=SYNC_MASTER with a replica of brokerRole=SLAVE, or "
    "enableControllerMode=true with a controller of Apache's"
)
_LIGHT_QUEUES: Final = "dispatch to light message queues (LMQ)"
_NO_LIGHT_QUEUES: Final = "remove the key, or use Apache's broker for the clients that read light queues"
_ONE_FOLDER: Final = "name one folder, on a volume that spans the disks"

_ACCESS_CONTROL: Final = (
    UnsupportedSetting("aclEnable", TRUE, "access control of version 1", _USE_VERSION_2),
)
_REPLICATION: Final = (
    UnsupportedSetting("enableDLegerCommitLog", TRUE, "the DLedger commit log", _SINGLE_MASTER),
    UnsupportedSetting("duplicationEnable", TRUE, "duplication of the commit log", _SINGLE_MASTER),
)
_STORE: Final = (
    UnsupportedSetting(
        "storePathCommitLog", several(","), "a commit log spread over several folders", _ONE_FOLDER
    ),
    UnsupportedSetting(
        "readOnlyCommitLogStorePaths", NOT_EMPTY, "a commit log spread over several folders", _ONE_FOLDER
    ),
    UnsupportedSetting(
        "storeType",
        other_than("default"),
        "a store in RocksDB",
        "set default, with a folder in which no RocksDB store is kept",
    ),
    UnsupportedSetting(
        "messageStorePlugIn",
        NOT_EMPTY,
        "a store plug-in (tiered storage)",
        "remove the key and set fileReservedTime so that messages are kept for long enough",
    ),
    UnsupportedSetting("enableLmq", TRUE, _LIGHT_QUEUES, _NO_LIGHT_QUEUES),
    UnsupportedSetting("enableMultiDispatch", TRUE, _LIGHT_QUEUES, _NO_LIGHT_QUEUES),
)

UNSUPPORTED: Final = (*_ACCESS_CONTROL, *_REPLICATION, *_STORE, *METRICS)
