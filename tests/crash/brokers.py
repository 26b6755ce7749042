"""Brokers for crash and fault tests: small files, and processes with injected faults."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.own_servers import OwnBroker

FLUSH_MODES = ("ASYNC_FLUSH", "SYNC_FLUSH")
LOG_FILE_BYTES = 256 * 1024
# Several files of each kind in every round, so that faults also hit file boundaries.
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "2000",
    "maxIndexNum": "10000",
    "maxMessageSize": "65536",
}
_PROJECT = Path(__file__).resolve().parents[2]


class FaultyBroker(OwnBroker):
    """`rmq-broker` with small files; `environment` adds variables, `faults` are `broker_process` options."""

    def __init__(
        self,
        home: Path,
        flush_mode: str = "ASYNC_FLUSH",
        *,
        settings: Mapping[str, str] | None = None,
        faults: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        keys = {**SMALL_FILES, "flushDiskType": flush_mode, **(settings or {})}
        super().__init__("", home=home, settings=keys)
        self.faults = list(faults)
        self.environment = dict(environment or {})

    async def __aexit__(self, *_: object) -> None:
        # For failing tests: whether the broker was still running.
        print(f"the broker's exit code: {self.process.exit_code}")
        self.close()

    def _command(self) -> Sequence[str]:
        command = super()._command()
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        if self.faults:
            path = os.pathsep.join([str(_PROJECT), os.environ.get("PYTHONPATH", "")])
            variables.append(f"PYTHONPATH={path}")
            command = [sys.executable, "-m", "tests.crash.broker_process", *self.faults, "--", *command[1:]]
        return ["env", *variables, *command]

    @property
    def log_files(self) -> list[Path]:
        """Its commit log files."""
        return sorted((self.store_path / "commitlog").iterdir())
