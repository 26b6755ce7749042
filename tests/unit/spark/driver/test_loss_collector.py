"""Reports of tasks on their way to the driver, over real connections on this machine."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from pyspark_rocketmq.driver import loss_collector
from pyspark_rocketmq.driver.loss_collector import LossCollector
from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.tasks.loss_reports import ACCEPTED, MAX_LINE_BYTES, LossReport, Reporter
from pyspark_rocketmq.tasks.partitions import ReportAddress
from pyspark_rocketmq.tasks.ranges import QueueRange
from tests.support.waiting import until_in_thread

A, B = QueueKey("T", "a", 0), QueueKey("T", "b", 3)
NAME_SERVERS = "127.0.0.1:9876;127.0.0.1:9877"


@pytest.fixture
def collector() -> Iterator[LossCollector]:
    opened = LossCollector.open("auto", NAME_SERVERS)
    assert opened is not None
    yield opened
    opened.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_report_arrives_before_the_task_ends(collector: LossCollector) -> None:
    assert collector.address.host == "127.0.0.1"
    report = LossReport([QueueRange(A, 0, 9), QueueRange(B, 5, 7)], [QueueRange(A, 2, 4)])
    assert Reporter().send(report, collector.address)
    assert collector.take() == report
    assert collector.take() == LossReport()


def test_connections_beyond_the_limit_are_closed(
    collector: LossCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_collector, "MAX_CONNECTIONS", 1)
    report = LossReport([QueueRange(A, 0, 9)])
    first = socket.create_connection((collector.address.host, collector.address.port))
    with first, first.makefile("rb") as answers:
        first.sendall(next(report.lines(collector.address.token)))
        assert answers.readline() == ACCEPTED
        assert not Reporter().send(report, collector.address)
    until_in_thread(lambda: Reporter().send(report, collector.address))


def test_report_of_many_ranges_takes_several_lines(collector: LossCollector) -> None:
    many = LossReport([QueueRange(QueueKey("T", "b" * 255, n), n, n + 1) for n in range(2500)])
    assert max(map(len, many.lines("t"))) < MAX_LINE_BYTES
    assert len(list(many.lines("t"))) == 3
    assert Reporter().send(many, collector.address)
    assert collector.take() == many


@pytest.mark.parametrize(
    "wrong",
    [
        b"x\n",
        b"[]\n",
        b'{"read": []}\n',
        b'{"token": 5}\n',
        b'{"token": "TOKEN", "lost": 3}\n',
        b'{"token": "TOKEN", "lost": [["T", "a", 0, 5, 5]]}\n',
        b'{"token": "TOKEN", "lost": [["T", "a", "0", 5, 6]]}\n',
        b'{"token": "\xc3\xb6", "lost": []}\n',
        b"[" * 100_000 + b"\n",
        b"x" * (MAX_LINE_BYTES + 1) + b"\n",
    ],
)
def test_other_input_is_rejected(collector: LossCollector, wrong: bytes) -> None:
    at = collector.address
    text = wrong.replace(b"TOKEN", at.token.encode())
    with socket.create_connection((at.host, at.port), timeout=5) as connection:
        connection.sendall(text)
        with suppress(ConnectionResetError):  # input was left unread
            assert connection.recv(10) == b""
    assert collector.take() == LossReport()
    assert Reporter().send(LossReport([QueueRange(A, 0, 1)]), at)
    assert collector.take() == LossReport([QueueRange(A, 0, 1)])


def test_report_with_the_token_of_another_query_is_rejected(
    collector: LossCollector, caplog: pytest.LogCaptureFixture
) -> None:
    other = ReportAddress(collector.address.host, collector.address.port, "0" * 32)
    assert not Reporter().send(LossReport([], [QueueRange(A, 0, 1)]), other)
    assert collector.take() == LossReport()
    until_in_thread(lambda: "report of losses rejected" in caplog.text, 5)
    assert "losses not reported to the driver" in caplog.text


def test_address_for_executors_that_reach_the_driver_elsewhere() -> None:
    port = free_port()
    opened = LossCollector.open(f"driver.example:{port}", NAME_SERVERS)
    assert opened is not None
    try:
        assert (opened.address.host, opened.address.port) == ("driver.example", port)
        report = LossReport([QueueRange(A, 0, 1)])
        assert Reporter().send(report, ReportAddress("127.0.0.1", port, opened.address.token))
        assert opened.take() == report
    finally:
        opened.close()


def test_port_in_use_is_no_error_of_the_query(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("", 0)) as server:
        assert LossCollector.open(f"127.0.0.1:{server.getsockname()[1]}", NAME_SERVERS) is None
    assert "tasks cannot report losses" in caplog.text


def test_off_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    assert LossCollector.open("off", NAME_SERVERS) is None
    assert caplog.text == ""


def test_unreachable_driver_delays_few_tasks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    now = [100.0]
    reporter, away = Reporter(lambda: now[0]), ReportAddress("127.0.0.1", free_port(), "t")
    nothing, loss = LossReport([QueueRange(A, 0, 1)]), LossReport([], [QueueRange(A, 0, 1)])
    attempts = []
    for report, later in ((nothing, 0), (nothing, 59.9), (loss, 0), (nothing, 59.9), (nothing, 0.2)):
        now[0] += later
        caplog.clear()
        assert not reporter.send(report, away)
        attempts.append("losses not reported" in caplog.text)
    assert attempts == [True, False, True, False, True]


def test_report_is_json() -> None:
    (line,) = LossReport([QueueRange(A, 0, 9)]).lines("x")
    assert json.loads(line) == {"token": "x", "read": [["T", "a", 0, 0, 9]]}
