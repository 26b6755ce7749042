"""Logs of a daemon: every logger of the process, through structlog, to standard error.

On a terminal a line is `time level [logger] event key=value …`; elsewhere it is one JSON object, which log
collectors of containers parse. Library code uses the standard `logging`, whose name this module leaves free.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO

import orjson
import structlog
from structlog.typing import EventDict, WrappedLogger

from .common_settings import LogFormat, LogLevel

_SHOWN_FIRST: Final = ("timestamp", "level", "logger", "event")
_NEEDS_QUOTES: Final = frozenset(' "=\n\t\\')


def configure_logs(
    level: LogLevel = LogLevel.INFO,
    log_format: LogFormat = LogFormat.AUTO,
    stream: TextIO | None = None,
    fields: Mapping[str, str] | None = None,
) -> None:
    """Send all logs of the process to `stream` (standard error). A further call replaces this.

    Every line has the given fields, which tell apart processes that log to one stream.
    """
    target = sys.stderr if stream is None else stream
    as_text = log_format is LogFormat.TEXT or (log_format is LogFormat.AUTO and target.isatty())
    timestamp = structlog.processors.TimeStamper(fmt="iso", utc=not as_text)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        _adding(fields or {}),
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        timestamp,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer = render_text if as_text else structlog.processors.JSONRenderer(serializer=_to_json)
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    logging.captureWarnings(True)
    set_log_level(level)


def set_log_level(level: LogLevel) -> None:
    """Set the least severity that is logged, with immediate effect."""
    logging.getLogger().setLevel(level.value)


def render_text(logger: WrappedLogger, name: str, event_dict: EventDict) -> str:
    """Return one event as a line for people; a stack trace follows on lines of its own."""
    trace = "".join(f"\n{event_dict.pop(key)}" for key in ("stack", "exception") if key in event_dict)
    timestamp, level, origin, event = (str(event_dict.pop(key, "")) for key in _SHOWN_FIRST)
    pairs = "".join(f" {key}={_quoted(value)}" for key, value in event_dict.items())
    return f"{timestamp} {level:<8} [{origin}] {event}{pairs}{trace}"


def _adding(fields: Mapping[str, str]) -> structlog.typing.Processor:
    def add(logger: WrappedLogger, name: str, event_dict: EventDict) -> EventDict:
        event_dict.update(fields)
        return event_dict

    return add


def _quoted(value: object) -> str:
    text = str(value)
    if not text or not _NEEDS_QUOTES.isdisjoint(text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return text


def _to_json(event_dict: EventDict, **_: Any) -> str:
    return orjson.dumps(event_dict, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
