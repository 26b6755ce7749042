"""Settings of a name server and a broker for tests: loopback, small files, no metrics, any full disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rmq_broker.settings.broker import BrokerSettings
from rmq_broker.settings.broker import known_keys as broker_keys
from rmq_namesrv.config import NamesrvSettings
from rmq_namesrv.config import known_keys as namesrv_keys
from rmq_remoting.daemon.configuration import Configuration, Override, load

from .ports import LOOPBACK

SMALL_BROKER: Final[Mapping[str, object]] = {
    "brokerName": "broker-a",
    "brokerIP1": LOOPBACK,
    "brokerIP2": LOOPBACK,
    "bindAddress": LOOPBACK,
    "listenPort": 0,
    "namesrvAddr": "",
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
    "metricsExporterType": "DISABLE",
    "grpcServerPort": 0,
    "readyWaitMillis": 200,
    # The disk of a developer's machine may be nearly full.
    "diskSpaceWarningLevelRatio": 99,
    "diskSpaceCleanForciblyRatio": 99,
    # The machine may be busy with other tests.
    "waitTimeMillsInSendQueue": 10_000,
}
"""Settings of a small broker on any free port, by Apache's keys."""

# Longer than any test advances the time: no file is deleted and no client expires by it.
_TEN_YEARS_HOURS: Final = 10 * 365 * 24
_TEN_YEARS_SECONDS: Final = _TEN_YEARS_HOURS * 3600
# Milliseconds in the settings are 32-bit numbers: 24 days.
_LONGEST_MS: Final = 2**31 - 1

_FOR_APPLICATIONS: Final[Mapping[str, object]] = {
    "readyWaitMillis": 5000,
    "fileReservedTime": _TEN_YEARS_HOURS,
    "channelExpiredTimeout": _LONGEST_MS,
    "serverChannelMaxIdleTimeSeconds": _TEN_YEARS_SECONDS,
    # SQL filters and recalls work without a setting of the test.
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
}


def broker_configuration(
    store: Path, file: Path | None = None, /, **keys: object
) -> Configuration[BrokerSettings]:
    """Return the configuration of a small broker; `keys` override it. Raises SettingsError."""
    return _load_broker(file, {**SMALL_BROKER, "storePathRootDir": store, **keys})


def application_configuration(store: Path, keys: Mapping[str, object]) -> Configuration[BrokerSettings]:
    """Return the configuration of a broker for tests of applications. Raises SettingsError."""
    return _load_broker(None, {**SMALL_BROKER, **_FOR_APPLICATIONS, "storePathRootDir": store, **keys})


def namesrv_configuration(
    folder: Path, file: Path | None = None, /, **keys: object
) -> Configuration[NamesrvSettings]:
    """Return the configuration of a name server on any free port. Raises SettingsError."""
    chosen = {
        "bindAddress": LOOPBACK,
        "listenPort": 0,
        "kvConfigPath": folder / "kvConfig.json",
        "metricsExporterType": "DISABLE",
        **keys,
    }
    return load(NamesrvSettings, file, _overrides(chosen), namesrv_keys)


def _load_broker(file: Path | None, chosen: Mapping[str, object]) -> Configuration[BrokerSettings]:
    return load(BrokerSettings, file, _overrides(chosen), broker_keys)


def _overrides(chosen: Mapping[str, object]) -> list[Override]:
    return [Override(key, str(value)) for key, value in chosen.items()]
