"""The supervisor's end of its connection to one shard: reports come in, admin requests go out."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.daemon.deferred_answers import deferred_answer
from rmq_remoting.errors import RemotingError, RequestError

from .kinds import CONFIRM, END_OF_REPORTS, GROUPS, NOT_SHARED, TOPICS, ConfigT, Kind

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection

    from .common_tables import CommonTables
    from .shared_table import Difference, SharedTable

log = logging.getLogger("rmq.shards")

# Entries in one request.
_BATCH: Final = 50
_ANSWER_SECONDS: Final = 30.0
# After a refusal or a time-out.
_RETRY_SECONDS: Final = 60.0


class ShardLink:
    """Takes the reports of one shard, and brings its tables up to date while it is connected.

    It is the request handler of the connection.
    """

    clock = staticmethod(time.monotonic)

    def __init__(
        self, shard: int, name: str, tables: CommonTables, *, retry_seconds: float = _RETRY_SECONDS
    ) -> None:
        self._shard = shard
        self._name = name
        self._tables = tables
        self._retry_seconds = retry_seconds
        self._wake = asyncio.Event()
        self._has_reported: set[str] = set()
        # Entries that the shard has refused, by kind and name, each with the time of the next attempt.
        self._refused: dict[tuple[str, str], tuple[object, float]] = {}
        tables.on_change(self._wake.set)

    def begin(self) -> None:
        """Expect the reports of a shard that starts."""
        self._has_reported.clear()
        self._refused.clear()
        self._tables.begin(self._shard)

    # --- reports ---

    def dispatch_all(
        self, connection: Connection, requests: list[RemotingCommand], received_at: float, now: float
    ) -> None:
        """Take reports over, and answer those that expect it."""
        for request in requests:
            if request.is_response:
                continue  # too late
            code, remark = ResponseCode.SUCCESS, None
            try:
                self._take(request)
            except RemotingError as error:
                code, remark = ResponseCode.SYSTEM_ERROR, str(error)
                log.error(
                    "report of a shard not understood shard=%s code=%d cause=%s; its topics or groups may "
                    "differ from the others' until it restarts",
                    self._name,
                    request.code,
                    error,
                )
            if CONFIRM in request.ext_fields:
                deferred_answer(self._confirm(connection, request), "confirm reports")
            elif not request.is_oneway:
                connection.write(request.response(code, remark))

    async def _confirm(self, connection: Connection, request: RemotingCommand) -> None:
        code, remark = ResponseCode.SUCCESS, None
        try:
            await self._tables.save()
        except OSError as error:
            code, remark = ResponseCode.SYSTEM_ERROR, f"the supervisor cannot write its file: {error}"
        connection.write(request.response(code, remark))

    def _take(self, request: RemotingCommand) -> None:
        if (excluded := request.ext_fields.get(NOT_SHARED)) is not None:
            self._tables.exclude_topic(excluded)
        elif request.code in (TOPICS.update, TOPICS.deletion):
            self._take_report(TOPICS, self._tables.topics, request)
        else:
            self._take_report(GROUPS, self._tables.groups, request)

    def _take_report(
        self, kind: Kind[ConfigT], table: SharedTable[ConfigT], request: RemotingCommand
    ) -> None:
        if request.code == kind.deletion:
            name = kind.deleted_name(request.ext_fields)
            self._tables.report(kind, table, self._shard, name, None)
            return
        for config in kind.decode(request.body):
            self._tables.report(kind, table, self._shard, kind.name_of(config), config)
        if END_OF_REPORTS in request.ext_fields:
            self._has_reported.add(kind.name)
            self._tables.end(kind, table, self._shard)

    # --- requests ---

    async def run(self, connection: Connection) -> None:
        """Bring the shard up to date, now and after each change, until the connection ends."""
        self._wake.set()
        while not connection.is_closed:
            try:
                async with asyncio.timeout(self._retry_seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self._update_all(connection, TOPICS, self._tables.topics)
                await self._update_all(connection, GROUPS, self._tables.groups)
            except RequestError as error:
                if not connection.is_closed:
                    log.warning(
                        "shard not brought up to date shard=%s cause=%s next_attempt_s=%.0f",
                        self._name,
                        error,
                        self._retry_seconds,
                    )

    async def _update_all(
        self, connection: Connection, kind: Kind[ConfigT], table: SharedTable[ConfigT]
    ) -> None:
        while kind.name in self._has_reported:
            now = self.clock()
            refused = [
                name
                for (refused_kind, name), (wanted, retry_at) in self._refused.items()
                if refused_kind == kind.name and wanted == table.entries.get(name) and now < retry_at
            ]
            differences = table.differences(self._shard, _BATCH, but=refused)
            if not differences:
                return
            updates = [difference for difference in differences if difference.wanted is not None]
            deletions = [difference for difference in differences if difference.wanted is None]
            if updates:
                await self._update(connection, kind, table, updates)
            for deletion in deletions:
                request = kind.deletion_of(deletion.name)
                await self._send(connection, kind, table, request, [deletion])

    async def _update(
        self,
        connection: Connection,
        kind: Kind[ConfigT],
        table: SharedTable[ConfigT],
        updates: list[Difference[ConfigT]],
    ) -> None:
        """Send several entries in one request; a shard that refuses it gets them one by one."""
        if await self._send(connection, kind, table, kind.update_of(updates), updates):
            return
        for update in updates:
            await self._send(connection, kind, table, kind.update_of([update]), [update])

    async def _send(
        self,
        connection: Connection,
        kind: Kind[ConfigT],
        table: SharedTable[ConfigT],
        request: RemotingCommand,
        differences: list[Difference[ConfigT]],
    ) -> bool:
        """Send one request; return False if the shard refused several entries together."""
        response = await connection.send_request(request, _ANSWER_SECONDS)
        if response.code == ResponseCode.SUCCESS:
            for difference in differences:
                self._refused.pop((kind.name, difference.name), None)
                self._tables.applied(kind, table, self._shard, difference.name, difference.wanted)
            return True
        if len(differences) > 1:
            return False
        difference = differences[0]
        retry_at = self.clock() + self._retry_seconds
        self._refused[kind.name, difference.name] = difference.wanted, retry_at
        log.error(
            "shard refuses a %s that others have %s=%s shard=%s cause=%s next_attempt_s=%.0f",
            kind.name,
            kind.name,
            difference.name,
            self._name,
            response.remark,
            self._retry_seconds,
        )
        return True
