"""The bound of the connections to brokers."""

from __future__ import annotations

import pytest

from rmq_proxy.remoting.connection_limit import ConnectionLimit
from rmq_remoting.errors import TooManyRequests


def test_connections_beyond_the_limit_are_refused_until_others_end(caplog: pytest.LogCaptureFixture) -> None:
    limit = ConnectionLimit(2)
    limit.enter("c:1", "broker-a")
    limit.enter("c:1", "broker-b")
    for _ in range(3):
        with pytest.raises(TooManyRequests, match="remotingBrokerConnectionsMaxNum=2"):
            limit.enter("c:2", "broker-a")
    assert (limit.open, limit.refused) == (2, 3)
    (line,) = caplog.messages
    assert "client=c:2 broker=broker-a refused=1 limit=2" in line
    limit.leave(2)
    limit.enter("c:2", "broker-a")
    assert limit.open == 1
