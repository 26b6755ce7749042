"""The name server's own settings: UPDATE_NAMESRV_CONFIG (318), GET_NAMESRV_CONFIG (319)."""

from __future__ import annotations

import asyncio
import logging

from rmq_remoting.answers import Answer, Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.daemon import properties
from rmq_remoting.daemon.configuration import Change, Configuration, ProblemKind, SettingsError
from rmq_remoting.errors import CommandError

from ..config import NamesrvSettings

log = logging.getLogger("rmq.namesrv.config")


class ConfigProcessor:
    """Reads and changes settings; a change is answered once it is persisted in the loaded file."""

    def __init__(self, configuration: Configuration[NamesrvSettings]) -> None:
        self._configuration = configuration

    def update_config(self, connection: Connection, request: RemotingCommand) -> Result:
        """318. The body is `key=value` lines; all of them take effect, or none."""
        try:
            given = properties.parse(request.body.decode())
            change = self._configuration.update(given, protected=self._configuration.settings.protected_keys)
        except SettingsError as error:
            is_protected = any(problem.kind is ProblemKind.PROTECTED for problem in error.problems)
            code = ResponseCode.NO_PERMISSION if is_protected else ResponseCode.INVALID_PARAMETER
            raise CommandError(code, str(error)) from error
        except (UnicodeDecodeError, properties.PropertiesError) as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"not key=value lines: {error}") from error
        if not change:
            return request.response(ResponseCode.SUCCESS)
        log.info("settings changed peer=%s changed=%s", connection.peer, dict(change.changed))
        return asyncio.get_running_loop().create_task(self._persist(request, change))

    def get_config(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """319. The body is `key=value` lines."""
        return request.response(ResponseCode.SUCCESS, body=self._configuration.to_text().encode())

    async def _persist(self, request: RemotingCommand, change: Change) -> Answer:
        try:
            is_saved = await asyncio.to_thread(self._configuration.persist, change)
        except OSError as error:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"the change is in force but not persisted: {error}; the next restart will undo it",
            ) from error
        remark = (
            None
            if is_saved
            else "not persisted, in force until the next restart: no configuration file was given"
        )
        return request.response(ResponseCode.SUCCESS, remark)
