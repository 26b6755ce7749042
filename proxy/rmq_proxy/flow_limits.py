"""Bounds on calls in progress, by kind of call: beyond a bound the proxy answers "flow limit".

Apache's proxy runs the calls of each kind in a thread pool, and refuses a call that finds the pool's queue
full (Apache RocketMQ 5.3.3, GrpcMessagingApplication). This proxy has no threads for calls. The capacity of
the queue bounds the calls that have begun and not ended. Calls that a broker holds for messages do not
count, as they occupy no thread of Apache's proxy either.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from rmq_remoting.repeated_event import RepeatedEvent

from .protocol.definition_pb2 import Code
from .settings import ProxySettings
from .statuses import Refusal

log = logging.getLogger("rmq.proxy")

PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
ROUTE: Final = "route"
CLIENT_MANAGER: Final = "client manager"
TRANSACTION: Final = "transaction"
# The pools of Apache's proxy. It lacks the methods for pulls and offsets.
_KINDS: Final = {
    "SendMessage": PRODUCER,
    "RecallMessage": PRODUCER,
    "ReceiveMessage": CONSUMER,
    "AckMessage": CONSUMER,
    "ChangeInvisibleDuration": CONSUMER,
    "ForwardMessageToDeadLetterQueue": CONSUMER,
    "PullMessage": CONSUMER,
    "UpdateOffset": CONSUMER,
    "GetOffset": CONSUMER,
    "QueryOffset": CONSUMER,
    "QueryRoute": ROUTE,
    "QueryAssignment": ROUTE,
    "Heartbeat": CLIENT_MANAGER,
    "NotifyClientTermination": CLIENT_MANAGER,
    "Telemetry": CLIENT_MANAGER,
    "EndTransaction": TRANSACTION,
}
_LOG_SECONDS: Final = 60.0


class FlowLimit:
    """The bound of one kind. Belongs to one loop."""

    def __init__(self, kind: str, most: int, key: str, clock: Callable[[], float] = time.monotonic) -> None:
        """At most `most` calls are in progress; `key` is the setting."""
        self.kind = kind
        self.most = most
        self._key = key
        self._refusal = RepeatedEvent(_LOG_SECONDS, clock)
        self.in_progress = 0
        self.refused = 0

    def enter(self) -> Slot:
        """Return the place of one more call. Raises Refusal beyond the bound."""
        if self.in_progress >= self.most:
            self.refused += 1
            self._note()
            raise Refusal(
                Code.TOO_MANY_REQUESTS,
                f"flow limit: {self.in_progress} calls ({self.kind}) are in progress, the limit of "
                f"{self._key} is {self.most}; repeat the call later, or use another proxy",
            )
        return Slot(self)

    def _note(self) -> None:
        """Log refusals, at most once a minute."""
        if count := self._refusal.occurred():
            log.warning(
                "gRPC calls refused kind=%s refused=%d limit=%d setting=%s; brokers answer slowly, or the "
                "proxy lacks processor time",
                self.kind,
                count,
                self.most,
                self._key,
            )


class Slot:
    """The place of a call among those in progress, until it is released."""

    __slots__ = ("_limit",)

    def __init__(self, limit: FlowLimit | None = None) -> None:
        """Without `limit` the call counts nowhere."""
        self._limit = limit
        if limit is not None:
            limit.in_progress += 1

    def release(self) -> None:
        """Count the call no longer. May be called repeatedly."""
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.in_progress -= 1

    def __enter__(self) -> Slot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class FlowLimits:
    """The bounds of all kinds. Belongs to one loop."""

    def __init__(self, settings: ProxySettings) -> None:
        bounds = (
            (PRODUCER, settings.producer_queue_capacity, "grpcProducerThreadQueueCapacity"),
            (CONSUMER, settings.consumer_queue_capacity, "grpcConsumerThreadQueueCapacity"),
            (ROUTE, settings.route_queue_capacity, "grpcRouteThreadQueueCapacity"),
            (CLIENT_MANAGER, settings.client_manager_queue_capacity, "grpcClientManagerThreadQueueCapacity"),
            (TRANSACTION, settings.transaction_queue_capacity, "grpcTransactionThreadQueueCapacity"),
        )
        self.all = tuple(FlowLimit(*bound) for bound in bounds)
        by_kind = {limit.kind: limit for limit in self.all}
        self._by_method = {method: by_kind[kind] for method, kind in _KINDS.items()}

    def of(self, method: str) -> FlowLimit:
        """Return the bound of a method."""
        return self._by_method[method]
