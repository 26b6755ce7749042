"""Checks of a store directory on disk, independent of the broker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.crash.brokers import SMALL_FILES
from tests.crash.ledger_load import read_queues
from tests.support.apache import ApacheBroker, ApacheNamesrv
from tests.support.ledger import Ledger
from tests.support.stores import check_agreement
from tests.support.toolchain import JavaProgram

# A running broker indexes in the background, and updates the header of an index file in steps.
_UNFINISHED = "index."
_APACHE_SETTINGS = {**SMALL_FILES, "flushDiskType": "ASYNC_FLUSH"}


def check_directory(root: Path, *, stopped_cleanly: bool = False) -> None:
    """Check with `rmq-store verify`; after a clean stop also that queues and log agree to the last entry."""
    if stopped_cleanly:
        check_agreement(root)
    command = [sys.executable, "-m", "rmq_broker.store_tool.main", "verify", "--json", str(root)]
    verified = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert verified.returncode in (0, 1), verified.stderr
    errors = [finding for finding in json.loads(verified.stdout)["findings"] if finding["is_error"]]
    if not stopped_cleanly:
        errors = [finding for finding in errors if not finding["kind"].startswith(_UNFINISHED)]
    assert not errors, "\n".join(map(str, errors))


async def check_with_apache(program: JavaProgram, home: Path, ledger: Ledger) -> None:
    """Check that Apache's broker opens `home/store` and serves all messages."""
    async with ApacheNamesrv(program) as namesrv:
        broker = ApacheBroker(program, namesrv.address, home=home, settings=_APACHE_SETTINGS)
        async with broker:
            ledger.check(await read_queues(broker.port))
