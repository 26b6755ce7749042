"""What is checked of a store directory itself, beside what the broker says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.crash.ledger_load import read_queues
from tests.support.apache import ApacheBroker, ApacheNamesrv
from tests.support.ledger import Ledger
from tests.support.toolchain import JavaProgram
from tests.unit.broker.store.parts import check_agreement

# A running broker brings the index up to the log in the background, and its header counts it in steps.
_UNFINISHED = "index."


def check_directory(root: Path, *, stopped_cleanly: bool = False) -> None:
    """`rmq-store verify` finds nothing wrong; after a clean stop queues and log agree to the last entry."""
    if stopped_cleanly:
        check_agreement(root)
    command = [sys.executable, "-m", "rmq_broker.store_tool.main", "verify", "--json", str(root)]
    verified = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert verified.returncode in (0, 1), verified.stderr
    errors = [finding for finding in json.loads(verified.stdout)["findings"] if finding["is_error"]]
    if not stopped_cleanly:
        errors = [finding for finding in errors if not finding["kind"].startswith(_UNFINISHED)]
    assert not errors, "\n".join(map(str, errors))


def json_files(root: Path) -> dict[str, object]:
    """The content of the broker's JSON files; AssertionError where neither a file nor its backup is whole."""
    return {path.name: json.loads(path.read_bytes()) for path in (root / "config").glob("*.json")}


async def check_with_apache(program: JavaProgram, home: Path, ledger: Ledger) -> None:
    """Apache's own broker opens `home/store`, and serves everything."""
    async with ApacheNamesrv(program) as namesrv:
        broker = ApacheBroker(program, namesrv.address, home=home, settings=_apache_settings())
        async with broker:
            ledger.check(await read_queues(broker.port))


def _apache_settings() -> dict[str, str]:
    from tests.crash.brokers import SMALL_FILES  # noqa: PLC0415

    return {**SMALL_FILES, "flushDiskType": "ASYNC_FLUSH"}
