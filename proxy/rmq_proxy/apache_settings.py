"""What Apache's proxy can be set to: its keys, those that this one refuses, and its file rmq-proxy.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rmq_remoting.daemon.access.settings import ACCESS_TABLE
from rmq_remoting.daemon.configuration import Override, Problem, ProblemKind, SettingsError
from rmq_remoting.daemon.known_keys import KnownKey, read_known_keys
from rmq_remoting.daemon.unsupported_settings import METRICS, NOT_EMPTY, TRUE, UnsupportedSetting, other_than

_TABLE: Final = Path(__file__).with_name("apache_settings.tsv")


def known_keys() -> Mapping[str, KnownKey]:
    """Return every key of Apache's proxy."""
    return read_known_keys(_TABLE, ACCESS_TABLE)


UNSUPPORTED: Final = (
    UnsupportedSetting(
        "proxyMode",
        other_than("CLUSTER"),
        "LOCAL mode in this daemon",
        "start the broker with grpcServerPort=8081, which serves gRPC in its own process",
    ),
    UnsupportedSetting(
        "useDelayLevel", TRUE, "delivery by delay levels", "remove the key; brokers deliver at any time"
    ),
    *METRICS,
    UnsupportedSetting(
        "metricCollectorMode",
        other_than("off"),
        "collection of the clients' metrics",
        "remove the key",
    ),
    UnsupportedSetting(
        "namesrvDomain", NOT_EMPTY, "an address server", "set namesrvAddr to the name servers"
    ),
)


def read_json(file: Path) -> list[Override]:
    """Return the settings of a file in the form of Apache's rmq-proxy.json. Raises SettingsError."""
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise _unreadable(file, f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise _unreadable(file, f"is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise _unreadable(file, "must be one JSON object, with a member for each setting")
    return [Override(key, _text(value), file.name) for key, value in content.items()]


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _unreadable(file: Path, reason: str) -> SettingsError:
    return SettingsError([Problem(ProblemKind.UNREADABLE, "", "", str(file), reason)])
