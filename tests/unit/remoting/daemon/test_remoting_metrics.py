"""Metrics of a daemon's network side."""

from __future__ import annotations

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.daemon.exposition import render
from rmq_remoting.daemon.remoting_metrics import RemotingCollector
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.server import RemotingServer
from rmq_remoting.tiers import InlineTier, PoolTier


def test_tiers_requests_and_connections_are_reported() -> None:
    dispatcher = Dispatcher()
    send = InlineTier("send", capacity=10, max_wait_ms=200)
    admin = PoolTier("admin", threads=2, capacity=5, max_wait_ms=5000)
    dispatcher.register([RequestCode.SEND_MESSAGE], lambda *_: None, send)
    dispatcher.register([RequestCode.GET_BROKER_CONFIG], lambda *_: None, admin)
    send.statistics.rejected_late = 3
    admin.statistics.waiting = 4
    next(dispatcher.registrations()).answered[ResponseCode.SYSTEM_BUSY] = 7
    server = RemotingServer(dispatcher)
    server.statistics.protocol_errors = 2

    text = "".join(render(RemotingCollector(dispatcher, {"main": server}).collect(), {}))

    for line in (
        'rmq_tier_waiting{tier="admin"} 4',
        'rmq_tier_threads{tier="send"} 0',
        'rmq_tier_capacity{tier="admin"} 5',
        'rmq_tier_rejected_total{tier="send",reason="late"} 3',
        'rmq_requests_total{request_code="send_message",response_code="system_busy"} 7',
        "rmq_requests_unsupported_total 0",
        'rmq_connections_open{listener="main"} 0',
        'rmq_connections_protocol_errors_total{listener="main"} 2',
    ):
        assert line + "\n" in text, line
    dispatcher.stop()
