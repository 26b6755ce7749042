"""The log of grpcio about metadata that is no text: one line a minute, without a stack trace.

grpcio logs each such value of a client as an error, and takes it as Latin-1. A client could fill the log.
"""

from __future__ import annotations

import logging
from typing import Final

from rmq_remoting.errors import shown
from rmq_remoting.repeated_event import RepeatedEvent

_LOGGER: Final = "grpc._cython.cygrpc"
_BEGINNING: Final = "Invalid encoding on"
_LOG_SECONDS: Final = 60.0


class _Limit(logging.Filter):
    """Lets one of these records pass in an interval, reworded; all other records pass as they are."""

    def __init__(self) -> None:
        super().__init__()
        self._event = RepeatedEvent(_LOG_SECONDS)

    def filter(self, record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith(_BEGINNING):
            return True
        count = self._event.occurred()
        if not count:
            return False
        value = record.args[0] if isinstance(record.args, tuple) and record.args else record.args
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        record.msg = "metadata of gRPC calls is not in UTF-8, taken as Latin-1 count=%d value=%s"
        record.args = (count, shown(repr(value)))
        record.exc_info = record.exc_text = None
        return True


_LIMIT: Final = _Limit()


def limit_log_lines() -> None:
    """Limit the lines from now on, in this process. May be called repeatedly."""
    logging.getLogger(_LOGGER).addFilter(_LIMIT)
