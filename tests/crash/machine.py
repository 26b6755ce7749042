"""A machine that loses its power: a broker process on a disk that keeps only flushed data."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmq_broker.store.log.record import MAGIC_BLANK
from rmq_remoting.codes import RequestCode
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_stored_message
from rmq_remoting.message_errors import MessageDecodeError
from tests.crash.brokers import FaultyBroker
from tests.support.broker_requests import request
from tests.support.power_loss import cut_power
from tests.support.raw_client import raw_client

_BLANK = MAGIC_BLANK.to_bytes(4, signed=True)
_FLUSH_SECONDS = 20.0
_POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record of a commit log: `position` in the file called `file`."""

    file: str
    position: int
    raw: bytes
    message: MessageExt


class Machine:
    """A broker whose disk keeps only flushed data (`tests/support/power_loss.py`).

    `options` are those of `broker_process`, `settings` the broker's.
    """

    def __init__(self, home: Path, flush_mode: str, *options: str, **settings: str) -> None:
        self._memory = home / "memory"
        self._root = home / "store"
        # The directory at the last power cut as the broker had written it, and the flushed part of it.
        self._written, self._flushed = home / "written", home / "flushed"
        faults = ["--root", str(self._root), "--memory", str(self._memory), *options]
        self.broker = FaultyBroker(home, flush_mode, settings=settings, faults=faults)

    async def flushed_offset(self) -> int:
        """The offset up to which the log is on the disk, as the broker says."""
        end, unflushed = await self._log_state()
        return end - unflushed

    async def until_flushed(self, offset: int) -> None:
        """Wait until the log is flushed beyond `offset`."""
        async with asyncio.timeout(_FLUSH_SECONDS):
            while await self.flushed_offset() <= offset:  # noqa: ASYNC110  # another process flushes
                await asyncio.sleep(_POLL_SECONDS)

    async def until_all_flushed(self) -> None:
        """Wait until the whole log is flushed."""
        async with asyncio.timeout(_FLUSH_SECONDS):
            while (await self._log_state())[1]:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)

    def lose_power(self, chance: random.Random, share_kept: float) -> None:
        """Cut the power now. A random share of the unflushed data is on the disk nevertheless."""
        self.broker.kill()
        left = self._root.with_name("left")
        for folder in (self._written, self._flushed):
            shutil.rmtree(folder, ignore_errors=True)
        cut_power(self._root, self._memory, left, chance, share_kept)
        cut_power(self._root, self._memory, self._flushed, chance, share_kept=0.0)
        if (left / "rmq_boot_id").exists():
            (left / "rmq_boot_id").write_text("the boot before")
        self._root.rename(self._written)
        left.rename(self._root)
        shutil.rmtree(self._memory)

    def check_loss(self) -> list[LogRecord]:
        """Return the records that the last power cut took, after the restart.

        AssertionError if anything but the end of the log is missing, or a record that had been flushed.
        """
        written, found = (list(_records(root)) for root in (self._written, self._root))
        assert [one.raw for one in found] == [one.raw for one in written[: len(found)]], (
            "no prefix of the log"
        )
        lost = written[len(found) :]
        flushed = [one for one in lost if self._is_flushed(one)]
        assert not flushed, f"{len(flushed)} flushed records are lost, the first is {flushed[0].message}"
        return lost

    async def _log_state(self) -> tuple[int, int]:
        """The end of the log, and how many bytes before it are not flushed."""
        async with raw_client(self.broker.port) as client:
            answer = await client.ask(request(RequestCode.GET_BROKER_RUNTIME_INFO))
        table = json.loads(answer.body)["table"]
        return int(table["commitLogMaxOffset"]), int(table["flushBehindBytes"])

    def _is_flushed(self, record: LogRecord) -> bool:
        path = self._flushed / "commitlog" / record.file
        if not path.exists():
            return False
        with path.open("rb") as file:
            file.seek(record.position)
            return file.read(len(record.raw)) == record.raw


def _records(root: Path) -> Iterator[LogRecord]:
    """The records of a commit log; a kill may have left an incomplete one at its end."""
    for path in sorted((root / "commitlog").iterdir()):
        data, position = path.read_bytes(), 0
        while data[position + 4 : position + 8] != _BLANK:
            try:
                message = decode_stored_message(data, position, check_crc=True, decompress_body=False)
            except MessageDecodeError:
                return
            yield LogRecord(path.name, position, data[position : position + message.store_size], message)
            position += message.store_size
