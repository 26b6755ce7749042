"""Checks of the arguments of brokers for tests. Their errors are ValueErrors with name, value and cure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from rmq_client.checks import check_each, check_int, refuse

DEFAULT_QUEUES: Final = 4


def queues_by_topic(topics: str | Iterable[str] | Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of queues by topic. The broker checks names and numbers."""
    if isinstance(topics, str):
        return {topics: DEFAULT_QUEUES}
    if isinstance(topics, Mapping):
        names = check_each("topics", list(topics), str, "name each topic by a str")
        return {name: check_int(f"topics[{name!r}]", topics[name], least=0) for name in names}
    cure = "name topics, or give the number of queues by name"
    return dict.fromkeys(check_each("topics", topics, str, cure), DEFAULT_QUEUES)


def settings_by_key(settings: Mapping[str, object] | None) -> dict[str, object]:
    """Return a copy of the broker's settings, which the broker checks."""
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise refuse("settings", settings, "must be a dict of values by Apache's keys")
    return dict(settings)


def folder_path(folder: str | Path | None) -> Path | None:
    """Return the path of a folder; None stands for a temporary one."""
    if folder is None or isinstance(folder, Path):
        return folder
    if not isinstance(folder, str):
        raise refuse("folder", folder, "must be the path of a folder, as a str or a Path")
    return Path(folder)


def seconds_of(name: str, duration: float | timedelta) -> float:
    """Return a duration in seconds, also a negative one."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, bool) or not isinstance(duration, (int, float)):
        kind = type(duration).__name__
        raise refuse(name, duration, f"must be a number of seconds or a timedelta, not {kind}")
    return duration
