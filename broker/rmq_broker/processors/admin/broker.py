"""The broker itself: codes 25 (change settings), 26 (show settings) and 28 (run-time statistics)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from rmq_remoting.answers import Result
from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon import properties
from rmq_remoting.daemon.configuration import Change, Configuration, ProblemKind, SettingsError
from rmq_remoting.daemon.deferred_answers import answer_when_persisted
from rmq_remoting.errors import CommandError

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...monitoring.runtime_info import RuntimeInfo
    from ...settings.broker import BrokerSettings
    from ...settings.version import SettingsVersion

log = logging.getLogger("rmq.broker.processors")


class BrokerAdminProcessor:
    """Settings and run-time statistics."""

    def __init__(
        self,
        configuration: Configuration[BrokerSettings],
        version: SettingsVersion,
        runtime_info: RuntimeInfo,
    ) -> None:
        self._configuration = configuration
        self._version = version
        self._runtime_info = runtime_info

    def update_settings(self, connection: Connection, request: RemotingCommand) -> Result:
        """25: change settings; all of them, or none if one is invalid.

        They take effect at once and are written into the file that the broker was started with.
        """
        try:
            changes = properties.parse(properties.decode(request.body))
        except properties.PropertiesError as error:
            remark = f"the body must be lines of the form key=value: {error}"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark) from error
        protected = self._configuration.settings.protected_keys
        try:
            change = self._configuration.update(changes, protected=protected)
        except SettingsError as error:
            raise CommandError(_code_of(error), f"nothing was changed: {error}") from error
        log.info("settings changed peer=%s changes=%s", connection.peer, _text(change))
        return answer_when_persisted(
            request.response(ResponseCode.SUCCESS),
            lambda: asyncio.to_thread(self._configuration.persist, change),
        )

    def get_settings(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """26: every setting as `key=value` lines."""
        version = self._version.current.encode().decode()
        return request.response(
            ResponseCode.SUCCESS,
            ext_fields={"version": version},
            body=self._configuration.to_text().encode(),
        )

    def get_runtime_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """28: statistics by name. Read-only, but it queries the file system, so it runs in a pool."""
        body = KVTable(table=self._runtime_info.collect())
        return request.response(ResponseCode.SUCCESS, body=body.encode())


def _code_of(error: SettingsError) -> ResponseCode:
    kinds = {problem.kind for problem in error.problems}
    return ResponseCode.NO_PERMISSION if ProblemKind.PROTECTED in kinds else ResponseCode.INVALID_PARAMETER


def _text(change: Change) -> str:
    texts = [f"{key}: {old!r} to {new!r}" for key, (old, new) in change.changed.items()]
    return ", ".join(texts + [f"{key}={value} (without effect)" for key, value in change.unused.items()])
