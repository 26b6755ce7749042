"""Preparation of a daemon's process."""

from __future__ import annotations

import gc
import logging
import sys
from typing import Any

import pytest

from rmq_remoting.daemon import process
from rmq_remoting.daemon.common_settings import DaemonSettings
from rmq_remoting.daemon.configuration import Override, load
from rmq_remoting.daemon.process import prepare_process


def test_logs_are_set_up_notes_are_logged_and_the_interpreter_is_tuned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[Any] = []
    monkeypatch.setattr(
        process, "configure_logs", lambda *given, fields: done.append(("logs", given, fields))
    )
    monkeypatch.setattr(process, "set_log_level", lambda level: done.append(("level", level)))
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: done.append(("switch", seconds)))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(gc, "enable", lambda: done.append("enable"))
    configuration = load(DaemonSettings, None, [Override("logLevel", "ERROR")])
    configuration.notes.append("port 1 is ignored")
    settings = configuration.settings

    with caplog.at_level(logging.WARNING):
        prepare_process(configuration, "rmq.small", {"shard": "b-0"})

    logs = ("logs", (settings.log_level, settings.log_format), {"shard": "b-0"})
    assert done == [logs, ("switch", 0.0005), "freeze", "enable"]
    assert [(record.name, record.message) for record in caplog.records] == [
        ("rmq.small", "port 1 is ignored")
    ]

    configuration.update({"logLevel": "DEBUG"})
    assert done[-1] == ("level", settings.log_level)
