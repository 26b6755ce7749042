"""Formats of a daemon's log lines."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
import structlog

from rmq_remoting.daemon.common_settings import LogFormat, LogLevel
from rmq_remoting.daemon.logs import configure_logs, set_log_level


@pytest.fixture(autouse=True)
def _restore_logs() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def _json_lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_without_a_terminal_lines_are_json() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    logging.getLogger("rmq.test").info("%d topics", 3, extra={"broker": "a"})
    structlog.get_logger("rmq.other").warning("slow", took_ms=7)
    first, second = _json_lines(stream)
    assert (first["event"], first["level"], first["logger"]) == ("3 topics", "info", "rmq.test")
    assert first["broker"] == "a"
    assert str(first["timestamp"]).endswith("Z")
    assert (second["event"], second["took_ms"], second["logger"]) == ("slow", 7, "rmq.other")


def test_fields_of_the_process_are_in_every_line() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream, fields={"shard": "b-0"})
    logging.getLogger("rmq.test").info("one")
    structlog.get_logger("rmq.other").info("two")

    assert [line["shard"] for line in _json_lines(stream)] == ["b-0", "b-0"]


def test_an_exception_stays_in_its_json_line() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    try:
        raise ValueError("no\nway")
    except ValueError:
        logging.getLogger("rmq.test").exception("failed")
    (line,) = _json_lines(stream)
    assert "ValueError: no\nway" in str(line["exception"])


def test_on_a_terminal_lines_are_text() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    configure_logs(stream=stream)
    structlog.get_logger("rmq.test").info("started", port=1, path='a "b"', empty="")
    line = stream.getvalue()
    assert re.fullmatch(
        r'\d{4}-\S+ info     \[rmq\.test\] started port=1 path="a \\"b\\"" empty=""\n', line
    ), line


def test_text_shows_a_stack_trace_below_the_line() -> None:
    stream = io.StringIO()
    configure_logs(log_format=LogFormat.TEXT, stream=stream)
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("rmq.test").exception("failed")
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("[rmq.test] failed")
    assert rest[-1] == "ValueError: no"


def test_the_format_can_be_forced() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    configure_logs(log_format=LogFormat.JSON, stream=stream)
    logging.getLogger("rmq.test").info("x")
    assert _json_lines(stream)[0]["event"] == "x"


def test_the_level_can_be_changed() -> None:
    stream = io.StringIO()
    configure_logs(LogLevel.WARNING, stream=stream)
    log, other = logging.getLogger("rmq.test"), structlog.get_logger("rmq.other")
    log.info("1")
    other.info("2")
    set_log_level(LogLevel.DEBUG)
    log.debug("3")
    other.debug("4")
    assert [line["event"] for line in _json_lines(stream)] == ["3", "4"]


def test_values_without_a_json_form_become_text() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    structlog.get_logger("rmq.test").info("x", value={1}, table={1: 2})
    (line,) = _json_lines(stream)
    assert (line["value"], line["table"]) == ("{1}", {"1": 2})
