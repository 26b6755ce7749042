"""Flow control of cold reads, and reading ahead: codes 2001 to 2004.

Source: Apache RocketMQ 5.3.3, AdminBrokerProcessor. Thresholds last until the broker stops, as with Apache.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.daemon import properties
from rmq_remoting.errors import CommandError
from rmq_remoting.integer_bounds import INT64_MAX

from ...groups.names import group_name_problem
from ...pulling.cold_groups import MAX_THRESHOLDS

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.configuration import Configuration

    from ...pulling.cold_groups import ColdReadGroups
    from ...settings.broker import BrokerSettings

log = logging.getLogger("rmq.broker.processors")

_MODE_FIELD: Final = "READ_AHEAD_MODE"
# Whether to read ahead, by the numbers of madvise(2) that Apache's tool sends: MADV_NORMAL, MADV_RANDOM.
_MODES: Final = {"0": True, "1": False}


class ColdDataProcessor:
    """Thresholds of cold reads by group, and the mode of reading ahead."""

    def __init__(self, groups: ColdReadGroups, configuration: Configuration[BrokerSettings]) -> None:
        self._groups = groups
        self._configuration = configuration

    def set_thresholds(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """2001: set thresholds of groups, all of them or none if one is invalid.

        The body has lines of the form `group=bytes`. Apache's broker skips invalid ones.
        """
        try:
            given = properties.parse(properties.decode(request.body))
        except properties.PropertiesError as error:
            remark = f"the body must be lines of the form group=bytes: {error}"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark) from error
        thresholds = {group: _threshold(group, text) for group, text in given.items()}
        if len(self._groups.with_threshold | thresholds.keys()) > MAX_THRESHOLDS:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"at most {MAX_THRESHOLDS} groups have thresholds of their own; remove some (code 2002)",
            )
        self._groups.set_thresholds(thresholds)
        log.info("cold read thresholds set peer=%s thresholds=%s", connection.peer, thresholds)
        return request.response(ResponseCode.SUCCESS)

    def remove_threshold(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """2002: remove the threshold of the group that the body names; there need not be one."""
        try:
            group = request.body.decode()
        except UnicodeDecodeError as error:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER, f"the group's name is no UTF-8 text: {error}"
            ) from error
        if group:
            self._groups.remove_threshold(group)
            log.info("cold read threshold removed peer=%s group=%r", connection.peer, group)
        return request.response(ResponseCode.SUCCESS)

    def info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """2003: cold bytes and thresholds of groups."""
        return request.response(ResponseCode.SUCCESS, body=self._groups.info().encode())

    def set_read_ahead(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """2004: enable read-ahead (0), or read only the requested pages (1), until the broker stops."""
        mode = request.ext_fields.get(_MODE_FIELD, "")
        reads_ahead = _MODES.get(mode)
        if reads_ahead is None:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"{_MODE_FIELD} must be 0 (read ahead) or 1 (random reads), not {mode!r:.40}",
            )
        self._configuration.update({"dataReadAheadEnable": str(reads_ahead).lower()})
        log.info("reading ahead set peer=%s dataReadAheadEnable=%s", connection.peer, reads_ahead)
        return request.response(ResponseCode.SUCCESS, f"set commitlog readahead mode success, mode: {mode}")


def _threshold(group: str, text: str) -> int:
    """Return a threshold in bytes. Raises CommandError."""
    problem = group_name_problem(group)
    if problem is None and not (text.isascii() and text.isdigit() and int(text) <= INT64_MAX):
        problem = f"the threshold of group {group} must be a number of bytes from 0 on, not {text!r:.40}"
    if problem is not None:
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"nothing was changed: {problem}")
    return int(text)
