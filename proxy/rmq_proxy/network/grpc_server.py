"""The gRPC server of a loop, on gRPC's core.

It has the part of the interface of `grpc.aio.Server` that the proxy needs. `grpc.aio` accepts one call at a
time, and runs three tasks and five passages between two threads for each (grpcio 1.85). This server accepts
many at once, and runs one task for each.

It takes the classes of `grpc._cython.cygrpc`, as `grpc.server` does. They are no public interface of grpcio.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import grpc
from grpc._cython import cygrpc

from ..event_failures import EventFailures
from .completions import Completions
from .metadata_log import limit_log_lines
from .server_call import ServerCall

log = logging.getLogger("rmq.proxy")

# Calls that can arrive before the loop looks for events.
_ACCEPTED_AT_ONCE: Final = 64
# The core reports the end of cancelled calls at once. It has lost the report after this time.
_CANCEL_SECONDS: Final = 5.0
# Servers whose core delivers no events. Their end would wait for events, so that they are kept.
_ABANDONED: Final[list[GrpcServer]] = []
Options = Sequence[tuple[str, Any]]


class _Details(NamedTuple):
    """What a generic handler chooses a method by."""

    method: str
    invocation_metadata: Any


class GrpcServer:
    """A gRPC server. Belongs to one loop."""

    def __init__(self, options: Options = (), failures: EventFailures | None = None) -> None:
        """`options` are those of gRPC's channels. `failures` gets the events that the core loses."""
        self._completions = Completions(
            asyncio.get_running_loop(), failures or EventFailures(), self._event_lost, self._broken
        )
        self._server: Any = cygrpc.Server(tuple(options), False)
        self._server.register_completion_queue(self._completions.queue)
        self._generic: list[Any] = []
        self._handlers: dict[bytes, Any] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_serving = False
        self._down = asyncio.Event()

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Serve the methods of further handlers."""
        self._generic.extend(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Serve the methods of a service, by their names."""
        for name, handler in handlers.items():
            self._handlers[f"/{service}/{name}".encode()] = handler

    def add_insecure_port(self, address: str) -> int:
        """Listen in plain text, and return the port. Raises RuntimeError."""
        return self._bound(address, self._server.add_http2_port(address.encode()))

    def add_secure_port(self, address: str, credentials: Any) -> int:
        """Listen with TLS, and return the port. Raises RuntimeError."""
        return self._bound(address, self._server.add_http2_port(address.encode(), credentials._credentials))

    async def start(self) -> None:
        """Accept calls. Raises RuntimeError if no thread can start."""
        self._completions.start()
        self._server.start()
        self._is_serving = True
        for _ in range(_ACCEPTED_AT_ONCE):
            self._accept()

    async def stop(self, grace_seconds: float) -> None:
        """Accept no calls, and cancel those that do not end within `grace_seconds`."""
        if not self._is_serving:
            return
        self._is_serving = False
        self._server.shutdown(self._completions.queue, self._shut_down)
        if not await _is_set_within(grace_seconds, self._down):
            self._server.cancel_all_calls()
            await _is_set_within(_CANCEL_SECONDS, self._down)
        if self._tasks:  # their clients have gone
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
        if not self._down.is_set():
            self._abandon()
            log.warning(
                "gRPC server not shut down, its library lost the report limit_s=%.1f", _CANCEL_SECONDS
            )
        elif self not in _ABANDONED:
            await self._completions.close()
            self._server.destroy()

    def _shut_down(self, event: Any) -> None:
        self._down.set()

    def _event_lost(self) -> None:
        """Accept one more call: the lost event may have been one that was accepted."""
        if self._is_serving:
            self._accept()

    def _broken(self) -> None:
        """Refuse connections, and end all calls: no event will come."""
        self._abandon()
        self._down.set()
        if self._is_serving:
            self._is_serving = False
            self._server.shutdown(self._completions.queue, self._shut_down)
        self._server.cancel_all_calls()
        for task in self._tasks:
            task.cancel()

    def _abandon(self) -> None:
        _ABANDONED.append(self)

    def _accept(self) -> None:
        queue = self._completions.queue
        self._server.request_call(queue, queue, self._called)

    def _called(self, event: Any) -> None:
        if not event.success:  # the server stops
            return
        if self._is_serving:
            self._accept()
        ServerCall(event, self._completions, self._tasks).begin(self._handler_of(event))

    def _handler_of(self, event: Any) -> Any:
        method: bytes = event.call_details.method
        handler = self._handlers.get(method)
        if handler is None:
            details = _Details(method.decode("utf-8", "replace"), event.invocation_metadata)
            for generic in self._generic:
                handler = generic.service(details)
                if handler is not None:
                    self._handlers[method] = handler
                    break
        return handler

    @staticmethod
    def _bound(address: str, port: int) -> int:
        if port == 0:
            raise RuntimeError(f"gRPC's core cannot listen on {address}")
        return port


async def _is_set_within(seconds: float, event: asyncio.Event) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def new_server(options: Options, failures: EventFailures | None = None) -> Any:
    """Return a server; that of `grpc.aio`, which is slower, if grpcio's core is not as expected.

    `failures` gets the events that the core loses. That of `grpc.aio` reports none.
    """
    limit_log_lines()
    try:
        _check_core()
        return GrpcServer(options, failures)
    except (AttributeError, TypeError) as error:
        log.warning("gRPC's faster server not used grpcio=%s cause=%s", grpc.__version__, error)
        return grpc.aio.server(options=options)


def _check_core() -> None:
    """Make one of each operation. Raises AttributeError, TypeError."""
    cygrpc.ReceiveCloseOnServerOperation(0)
    cygrpc.ReceiveMessageOperation(0)
    cygrpc.SendInitialMetadataOperation(None, 0)
    cygrpc.SendMessageOperation(b"", 0)
    cygrpc.SendStatusFromServerOperation(None, int(cygrpc.StatusCode.ok), "", 0)
    for name in ("request_call", "shutdown", "cancel_all_calls", "destroy", "register_completion_queue"):
        getattr(cygrpc.Server, name)
    for name in ("start_server_batch", "peer"):
        getattr(cygrpc.Call, name)
