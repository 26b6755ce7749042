"""The settings of each shard, derived from those of the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.configuration import Problem, ProblemKind, SettingsError

if TYPE_CHECKING:
    from ..settings.broker import BrokerSettings

# From one shard's listenPort to the next. Each shard has five ports, from listenPort - 2 to listenPort + 2.
PORT_STEP: Final = 10
MAX_SHARDS: Final = 256
STATE_FILE: Final = "shards.json"

_FAST: Final = -2
_HA: Final = 1
_METRICS: Final = 2
_MAX_PORT: Final = 65_535
_FOLDER_PREFIX: Final = "shard-"
_OPTION: Final = "--shards"
# Where a broker without shards keeps its messages and topics.
_SINGLE_STORE: Final = ("commitlog", "consumequeue", "config")


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One shard: its number from 0, and what it does not share with the others."""

    number: int
    broker_name: str
    listen_port: int
    store: Path

    @property
    def metrics_port(self) -> int:
        """The port, on the loopback address, from which the supervisor reads the shard's metrics."""
        return self.listen_port + _METRICS

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports of the shard."""
        return tuple(self.listen_port + offset for offset in (_FAST, 0, _HA, _METRICS))

    @property
    def settings(self) -> dict[str, str]:
        """The settings that differ from those of the command line, by key."""
        return {
            "brokerName": self.broker_name,
            "listenPort": str(self.listen_port),
            "fastListenPort": str(self.listen_port + _FAST),
            "haListenPort": str(self.listen_port + _HA),
            "storePathRootDir": str(self.store),
            "metricsPromExporterHost": "127.0.0.1",
            "metricsPromExporterPort": str(self.metrics_port),
        }


def shard_count(text: str) -> int:
    """Return the number that `--shards` names; `auto` is the number of usable cores. Raises SettingsError."""
    if text.strip() == "auto":
        return min(usable_cores(), MAX_SHARDS)
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_SHARDS)) else 0
    if not 1 <= number <= MAX_SHARDS:
        raise _error(f"must be auto, or a whole number from 1 to {MAX_SHARDS}", text)
    return number


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS cannot restrict a process to some cores


def plan_shards(settings: BrokerSettings, count: int) -> list[ShardPlan]:
    """Derive the shards, and check that the settings can be shared. Raises SettingsError."""
    problems = list(_unshareable(settings))
    base, root = settings.listen_port, settings.store_path_root_dir
    plans = [
        ShardPlan(
            number,
            f"{settings.broker_name}-{number}",
            base + number * PORT_STEP,
            root / f"{_FOLDER_PREFIX}{number}",
        )
        for number in range(count)
    ]
    if base and not problems:
        problems = list(_port_problems(settings, plans))
    if problems:
        raise SettingsError([_problem(reason, str(count)) for reason in problems])
    return plans


def check_root(root: Path, count: int) -> None:
    """Check that the root folder is for shards, and for no more than these. Blocks. Raises SettingsError.

    Messages of a shard that does not run would not be delivered.
    """
    if any((root / name).exists() for name in _SINGLE_STORE):
        raise _error(
            f"{root} is the store of a broker without shards; choose another storePathRootDir, or move the "
            f"files to {root / f'{_FOLDER_PREFIX}0'} (docs/deployment.md)",
            str(count),
        )
    unused = sorted(number for number in _numbers_in(root) if number >= count)
    if unused:
        raise _error(
            f"{root} has the messages of shards up to {_FOLDER_PREFIX}{unused[-1]}, which would not be "
            f"delivered; set --shards {unused[-1] + 1}, or empty and move the folders of the others "
            "(docs/deployment.md)",
            str(count),
        )


def _numbers_in(root: Path) -> Iterator[int]:
    for folder in root.glob(f"{_FOLDER_PREFIX}*"):
        number = folder.name.removeprefix(_FOLDER_PREFIX)
        if folder.is_dir() and number.isascii() and number.isdigit():
            yield int(number)


def _unshareable(settings: BrokerSettings) -> Iterator[str]:
    """Yield the reasons why shards cannot have these settings."""
    base = settings.listen_port
    if settings.broker_role == "SLAVE":
        yield (
            "brokerRole=SLAVE is not supported with shards; run a broker without shards for each shard of "
            "the master, with its brokerName"
        )
    if settings.enable_controller_mode:
        yield (
            "enableControllerMode=true is not supported with shards; run a broker without shards for each "
            "group of the controller"
        )
    if not base:
        yield "listenPort=0 is no number to derive the ports of shards from; set the port of the first shard"
    elif settings.fast_listen_port != max(base + _FAST, 0):
        yield (
            f"fastListenPort={settings.fast_listen_port} cannot be shared; leave it out: each shard has "
            "listenPort - 2"
        )
    if base and settings.ha_listen_port != base + _HA:
        yield (
            f"haListenPort={settings.ha_listen_port} cannot be shared; leave it out: each shard has "
            "listenPort + 1"
        )
    if settings.store_path_commit_log is not None:
        yield (
            f"storePathCommitLog={settings.store_path_commit_log} cannot be shared; leave it out: each "
            "shard has a commit log below its own folder of storePathRootDir"
        )


def _port_problems(settings: BrokerSettings, plans: list[ShardPlan]) -> Iterator[str]:
    first, last = plans[0].ports[0], plans[-1].ports[-1]
    if first < 1 or last > _MAX_PORT:
        most = (_MAX_PORT - _METRICS - settings.listen_port) // PORT_STEP + 1
        yield (
            f"listenPort={settings.listen_port} needs the ports {first} to {last}, and ports are 1 to "
            f"{_MAX_PORT}; set another listenPort"
            + (f", or at most {most} shards" if first > 0 and most > 0 else "")
        )
    metrics = settings.metrics_port
    owner = next((plan for plan in plans if metrics in plan.ports), None)
    if settings.metrics_enabled and owner is not None:
        yield (
            f"metricsPromExporterPort={metrics} is a port of {owner.broker_name}, which has the ports "
            f"{', '.join(map(str, owner.ports))}; set another metricsPromExporterPort or listenPort"
        )


def _problem(reason: str, value: str) -> Problem:
    return Problem(ProblemKind.CONFLICT, _OPTION, value, "", reason)


def _error(reason: str, value: str) -> SettingsError:
    return SettingsError([_problem(reason, value)])
