"""The log of stalled deliveries: one line when they stall, one when they go on."""

from __future__ import annotations

import logging

import pytest

from rmq_broker.delivery.stall_log import StallLog


def test_only_changes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stall_log = StallLog(logging.getLogger("test"), "delayed messages")

    for happened in ("delivered", "full", "still full", "delivered", "delivered", "full"):
        if happened == "delivered":
            stall_log.delivered()
        else:
            stall_log.stalled(happened)

    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "delivery of due delayed messages stalled, will retry cause=full"),
        ("INFO", "delivery of due delayed messages resumed"),
        ("WARNING", "delivery of due delayed messages stalled, will retry cause=full"),
    ]
