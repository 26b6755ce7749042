"""Faults to order: requests that a broker or a name server refuses, delays, or does not answer.

A fault meets requests of one operation, such as `"send"`, and optionally of one topic. It takes the place of
the server's work, so the client cannot tell it from a real failure.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final, Self

from rmq_remoting.answers import Answer, Result, answer_of
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher, Processor

from .arguments import seconds_of

Operation = str | int

OPERATIONS: Final = MappingProxyType(
    {
        "send": (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
        ),
        "pull": (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE),
        "pop": (RequestCode.POP_MESSAGE,),
        "ack": (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE),
        "change_invisible": (RequestCode.CHANGE_MESSAGE_INVISIBLETIME,),
        "send_back": (RequestCode.CONSUMER_SEND_MSG_BACK,),
        "commit_offset": (RequestCode.UPDATE_CONSUMER_OFFSET,),
        "end_transaction": (RequestCode.END_TRANSACTION,),
        "lock": (RequestCode.LOCK_BATCH_MQ,),
        "heartbeat": (RequestCode.HEART_BEAT,),
        "route": (RequestCode.GET_ROUTEINFO_BY_TOPIC,),
    }
)
"""Request codes by the name of an operation; `"route"` is one of the name server."""

# The topic of a request: in most headers, in sends of version 2, and in messages that are sent back.
_TOPIC_FIELDS: Final = ("topic", "b", "originTopic")


@dataclass(eq=False, slots=True)
class Fault:
    """An ordered fault. As a context manager it is cancelled at the end of the block.

    `met`: the number of requests that the fault has met so far. `times`: how many it meets at most; None: all
    until `cancel`.
    """

    codes: frozenset[int]
    times: int | None
    topic: str | None
    delay_seconds: float = 0.0
    code: int | None = None
    remark: str = ""
    cut: bool = False
    silent: bool = False
    after: bool = False
    met: int = 0
    cancelled: bool = False

    def cancel(self) -> None:
        """Let the server answer further requests as usual."""
        self.cancelled = True

    @property
    def is_over(self) -> bool:
        """Whether the fault meets no further request."""
        return self.cancelled or (self.times is not None and self.met >= self.times)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


class Faults:
    """The faults of one broker and its name server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ordered: list[Fault] = []
        # Requests that run in thread pools, such as queries: a fault cannot delay them there.
        self._in_pools: set[int] = set()

    # --- orders ---

    def refuse(
        self,
        operation: Operation,
        code: int = ResponseCode.SYSTEM_ERROR,
        remark: str = "refused as ordered by the test",
        *,
        times: int | None = 1,
        topic: str | None = None,
    ) -> Fault:
        """Refuse the next requests with a response code, such as `ResponseCode.NO_PERMISSION`."""
        return self._order(Fault(_codes(operation), times, topic, code=int(code), remark=remark))

    def busy(self, operation: Operation, *, times: int | None = 1, topic: str | None = None) -> Fault:
        """Refuse the next requests as an overloaded broker does. Clients retry."""
        remark = "[TIMEOUT_CLEAN_QUEUE] busy as ordered by the test"
        return self.refuse(operation, ResponseCode.SYSTEM_BUSY, remark, times=times, topic=topic)

    def delay(
        self,
        operation: Operation,
        seconds: float | timedelta,
        *,
        times: int | None = 1,
        topic: str | None = None,
    ) -> Fault:
        """Process the next requests after a delay. Advancing the time shortens it."""
        delay_seconds = seconds_of("seconds", seconds)
        if delay_seconds <= 0:
            raise ValueError(f"seconds={seconds}: must be above 0")
        return self._order(Fault(_codes(operation), times, topic, delay_seconds=delay_seconds))

    def cut(
        self,
        operation: Operation,
        *,
        after: bool = False,
        times: int | None = 1,
        topic: str | None = None,
    ) -> Fault:
        """Cut the connection instead of an answer; `after`: after the request has taken effect."""
        return self._order(Fault(_codes(operation), times, topic, cut=True, after=after))

    def silence(
        self,
        operation: Operation,
        *,
        after: bool = False,
        times: int | None = 1,
        topic: str | None = None,
    ) -> Fault:
        """Do not answer; `after`: the request takes effect all the same. The client times out."""
        return self._order(Fault(_codes(operation), times, topic, silent=True, after=after))

    def clear(self) -> None:
        """Cancel all faults."""
        with self._lock:
            for fault in self._ordered:
                fault.cancel()
            self._ordered.clear()

    def _order(self, fault: Fault) -> Fault:
        if fault.times is not None and fault.times < 1:
            raise ValueError(f"times={fault.times}: must be at least 1, or None for every request")
        if in_pool := fault.codes & self._in_pools:
            raise ValueError(f"operation={min(in_pool)}: faults cannot meet queries and administration")
        with self._lock:
            self._ordered.append(fault)
        return fault

    # --- in the servers ---

    def install(self, dispatcher: Dispatcher) -> None:
        """Let the faults meet the requests of a dispatcher."""
        for row in dispatcher.registrations():
            if row.tier.kind == "pool":
                self._in_pools.add(row.code)
                continue
            # Requests of one turn would otherwise be answered together, past the fault.
            row.turn_processor = None
            row.processor = self._faulty(row.code, row.processor)

    def _faulty(self, code: int, processor: Processor) -> Processor:
        def process(connection: Connection, request: RemotingCommand) -> Result:
            fault = self._take(code, request) if self._ordered else None
            if fault is None:
                return processor(connection, request)
            return asyncio.ensure_future(_meet(fault, processor, connection, request))

        return process

    def _take(self, code: int, request: RemotingCommand) -> Fault | None:
        """Return the fault that meets a request: the oldest that fits. Forget those that are over."""
        with self._lock:
            self._ordered = [fault for fault in self._ordered if not fault.is_over]
            for fault in self._ordered:
                if code in fault.codes and fault.topic in (None, *_topics(request)):
                    fault.met += 1
                    return fault
        return None


async def _meet(
    fault: Fault,
    processor: Callable[[Connection, RemotingCommand], Result],
    connection: Connection,
    request: RemotingCommand,
) -> Answer:
    if fault.delay_seconds:
        await asyncio.sleep(fault.delay_seconds)
    if fault.code is not None:
        return request.response(fault.code, fault.remark)
    answer: Answer = None
    if fault.after or not (fault.cut or fault.silent):
        answer = await answer_of(processor(connection, request))
    if fault.cut:
        connection.abort()
    return None if fault.cut or fault.silent else answer


def _codes(operation: Operation) -> frozenset[int]:
    """Return the request codes of an operation. Raises ValueError for an unknown one."""
    if isinstance(operation, int):
        return frozenset({int(operation)})
    if operation not in OPERATIONS:
        raise ValueError(f"operation={operation!r}: known are {', '.join(OPERATIONS)}, and request codes")
    return frozenset(OPERATIONS[operation])


def _topics(request: RemotingCommand) -> Iterable[str | None]:
    return [request.ext_fields.get(name) for name in _TOPIC_FIELDS]
