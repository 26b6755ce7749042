"""Settings of a gRPC face in a broker's process: a file of Apache's form, and what the broker decides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from rmq_remoting.daemon.configuration import Override, load
from rmq_remoting.daemon.unsupported_settings import UnsupportedSetting, other_than

from .daemon_settings import UNSUPPORTED, known_keys, read_json
from .settings import ProxySettings

_LOCAL = UnsupportedSetting(
    "proxyMode",
    other_than("LOCAL"),
    "CLUSTER mode in the broker's process",
    "start rmq-proxy, which serves a whole cluster",
)


class LocalProxySettings(ProxySettings):
    """The proxy in a broker's process"""

    unsupported: ClassVar = (_LOCAL, *(each for each in UNSUPPORTED if each.key != _LOCAL.key))


def load_local_settings(file: Path | None, decided: Mapping[str, str]) -> LocalProxySettings:
    """Load the settings of a JSON file; those that the broker decides win. Raises SettingsError."""
    given = [] if file is None else read_json(file)
    overrides = [*given, *(Override(key, value, "broker") for key, value in decided.items())]
    return load(LocalProxySettings, overrides=overrides, known_keys=known_keys).settings
