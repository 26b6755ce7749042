"""The processor table as text."""

from __future__ import annotations

from rmq_remoting.codes import RequestCode
from rmq_remoting.daemon.processor_listing import processor_listing
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.tiers import InlineTier, PoolTier


def test_every_code_and_every_tier_has_a_line() -> None:
    dispatcher = Dispatcher()
    admin = PoolTier("admin", threads=2, capacity=50, max_wait_ms=5000)
    dispatcher.register([RequestCode.GET_BROKER_CONFIG], lambda *_: None, admin)
    send = InlineTier("send", capacity=10_000, max_wait_ms=200)
    dispatcher.register([RequestCode.SEND_MESSAGE, 777], lambda *_: None, send)
    assert processor_listing(dispatcher) == (
        "code  request            tier\n"
        "10    SEND_MESSAGE       send\n"
        "26    GET_BROKER_CONFIG  admin\n"
        "777   777                send\n"
        "\n"
        "tier   kind    threads  capacity  longest wait\n"
        "admin  pool    2        50        5000 ms\n"
        "send   inline  -        10000     200 ms\n"
    )
    dispatcher.stop()
