"""Settings of a gRPC face in a broker's process: a file of Apache's form, and what the broker decides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from rmq_remoting.daemon.configuration import Override, Problem, ProblemKind, SettingsError, load
from rmq_remoting.daemon.unsupported_settings import UnsupportedSetting, other_than

from .apache_settings import UNSUPPORTED, known_keys, read_json
from .settings import ProxySettings

_LOCAL = UnsupportedSetting(
    "proxyMode",
    other_than("LOCAL"),
    "CLUSTER mode in the broker's process",
    "start rmq-proxy, which serves a whole cluster",
)

# Nothing may serve without a protection that the file asks for.
_PROTECTIONS: Final = ("authenticationEnabled", "authorizationEnabled")


class LocalProxySettings(ProxySettings):
    """The proxy in a broker's process"""

    unsupported: ClassVar = (_LOCAL, *(each for each in UNSUPPORTED if each.key != _LOCAL.key))


def load_local_settings(file: Path | None, decided: Mapping[str, str]) -> LocalProxySettings:
    """Load the settings of a JSON file; those that the broker decides win. Raises SettingsError."""
    given = [] if file is None else read_json(file)
    for override in given:
        wanted = override.value.strip().lower() == "true"
        if override.key in _PROTECTIONS and wanted and decided.get(override.key) != "true":
            reason = "the broker has no access control: set this key in the broker's settings"
            problem = Problem(ProblemKind.CONFLICT, override.key, override.value, override.source, reason)
            raise SettingsError([problem])
    overrides = [*given, *(Override(key, value, "broker") for key, value in decided.items())]
    return load(LocalProxySettings, overrides=overrides, known_keys=known_keys).settings
