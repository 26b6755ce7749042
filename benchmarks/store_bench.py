"""Common parts of the store's rows: sizes, folders, brokers on a directory, queries."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.comparison import Figure
from benchmarks.filling import fill_command, unique_key
from benchmarks.load import LoadClient
from benchmarks.peer import BROKER_JVM
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support import toolchain
from tests.support.apache import ApacheBroker
from tests.support.broker_requests import request
from tests.support.own_servers import OwnBroker
from tests.support.processes import run_command
from tests.support.raw_client import raw_client

GIBIBYTE = 1 << 30
MEBIBYTE = 1 << 20

_FILL_SECONDS = 3600.0
_START_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class StoreBench:
    """Amounts of a measurement. `scale` multiplies the sizes of logs, indexes and queues; goals are for 1."""

    home: Path
    rounds: int
    seconds: int
    warm_up_seconds: int
    scale: float = 1.0

    def scaled(self, amount: int) -> int:
        """Return an amount multiplied by `scale`, at least 1."""
        return max(1, int(amount * self.scale))

    def folder(self, *names: str) -> Path:
        """Return a new empty folder."""
        path = self.home.joinpath(*names)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def needs_disk(self, size_bytes: int) -> None:
        """Raise RuntimeError unless the disk has this much space and another tenth of its size free."""
        disk = shutil.disk_usage(self.home)
        if disk.free - disk.total // 10 < size_bytes:
            raise RuntimeError(
                f"{size_bytes / GIBIBYTE:.1f} GiB and a tenth of the disk must be free in {self.home}, but "
                f"only {disk.free / GIBIBYTE:.1f} GiB are: set TMPDIR to a larger disk, or --scale below 1"
            )


StoreLoad = Callable[[StoreBench], Awaitable[Sequence[Figure]]]


async def fill(root: Path, settings: Mapping[str, str], **amounts: int) -> None:
    """Fill a store directory in a separate process; the amounts are those of `benchmarks.filling`."""
    print(f"  filling {root}: {amounts}", flush=True)
    finished = await run_command(
        fill_command(sys.executable, root, settings, amounts), timeout_s=_FILL_SECONDS
    )
    if finished.exit_code != 0:
        raise RuntimeError(str(finished))


def own_broker(namesrv_address: str, home: Path, settings: Mapping[str, str] | None = None) -> OwnBroker:
    """Return our broker on a folder, not started."""
    return OwnBroker(namesrv_address, broker_name="ours", cluster="Ours", home=home, settings=settings)


def apache_broker(
    namesrv_address: str, home: Path, settings: Mapping[str, str] | None = None
) -> ApacheBroker:
    """Return Apache's broker on a folder, with the heap of the other comparisons, not started."""
    return ApacheBroker(
        toolchain.apache_servers(),
        namesrv_address,
        broker_name="peer",
        cluster="Peer",
        home=home,
        settings=settings,
        jvm_options=BROKER_JVM,
    )


async def start_seconds(broker: OwnBroker | ApacheBroker) -> float:
    """Start a broker; return the seconds from exec until it is registered."""
    began = time.monotonic()
    await broker.start(_START_SECONDS)
    return time.monotonic() - began


def load_client(home: Path, namesrv_address: str, *, keep_running: bool = False) -> LoadClient:
    """Return the load program; with `keep_running`, close it in the end."""
    return LoadClient(toolchain.bench_client(), namesrv_address, home, keep_running=keep_running)


async def has_message(port: int, topic: str, number: int) -> bool:
    """Whether a message is found by its unique key."""
    asked = request(
        RequestCode.QUERY_MESSAGE,
        topic=topic,
        key=unique_key(number).decode(),
        maxNum=1,
        beginTimestamp=0,
        endTimestamp=2**63 - 1,
        _UNIQUE_KEY_QUERY=True,
    )
    async with raw_client(port) as client:
        return (await client.ask(asked)).code == ResponseCode.SUCCESS
