"""The bound of the connections to brokers on behalf of remoting clients.

Each client has a connection to each broker that it uses, so their number is that of the clients times that of
the brokers. Apache's proxy 5.3.3 needs no bound: all its clients share the few connections of the pool
MQClientAPIFactory (rocketmqMQClientNum).
"""

from __future__ import annotations

import logging
from typing import Final

from rmq_remoting.errors import TooManyRequests
from rmq_remoting.repeated_event import RepeatedEvent

log = logging.getLogger("rmq.proxy")

# At most one line in this time about refused connections.
_LOG_SECONDS: Final = 60.0


class ConnectionLimit:
    """Counts the connections to brokers, and refuses those beyond the limit. Belongs to one loop."""

    def __init__(self, most: int) -> None:
        """`most`: most connections at a time (remotingBrokerConnectionsMaxNum)."""
        self.most = most
        # Connections that are open, or are being opened.
        self.open = 0
        # Requests that were refused.
        self.refused = 0
        self._refused = RepeatedEvent(_LOG_SECONDS)

    def enter(self, peer: str, broker: str) -> None:
        """Count a connection of the client at `peer` to a broker. Raises TooManyRequests beyond the limit."""
        if self.open >= self.most:
            self.refused += 1
            if count := self._refused.occurred():
                log.warning(
                    "connection to a broker refused client=%s broker=%s refused=%d limit=%d; requests of "
                    "clients without the connection are answered SYSTEM_BUSY; raise "
                    "remotingBrokerConnectionsMaxNum, or start another proxy",
                    peer,
                    broker,
                    count,
                    self.most,
                )
            raise TooManyRequests(
                f"the proxy has {self.open} connections to brokers for its clients already, the limit is "
                f"remotingBrokerConnectionsMaxNum={self.most}; raise it, or connect to another proxy"
            )
        self.open += 1

    def leave(self, number: int = 1) -> None:
        """Count the end of connections."""
        self.open -= number
