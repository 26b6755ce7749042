"""A call of a client on gRPC's core: what a method gets as its context."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from grpc._cython import cygrpc

from .completions import Completions

log = logging.getLogger("rmq.proxy")

_NO_FLAGS: Final = 0
# A deadline this far away stands for none.
_NO_DEADLINE_SECONDS: Final = 1e9
_OK: Final = int(cygrpc.StatusCode.ok)
_UNKNOWN: Final = int(cygrpc.StatusCode.unknown)
_INTERNAL: Final = int(cygrpc.StatusCode.internal)
_CANCELLED: Final = int(cygrpc.StatusCode.cancelled)
_UNIMPLEMENTED: Final = int(cygrpc.StatusCode.unimplemented)


class CallEnded(Exception):
    """The call has ended: its client has gone, or its status was sent."""


class ServerCall:
    """One call, and the context of its method, as that of `grpc.aio`. Belongs to one loop."""

    __slots__ = (
        "_call",
        "_completions",
        "_deadline",
        "_is_finished",
        "_is_metadata_sent",
        "_metadata",
        "_task",
        "_tasks",
        "handler",
    )

    def __init__(self, event: Any, completions: Completions, tasks: set[asyncio.Task[None]]) -> None:
        """`event` has the call. `tasks` gets the method's task while it runs."""
        self.handler: Any = None
        self._call = event.call
        self._metadata = event.invocation_metadata
        self._deadline: float = event.call_details.deadline
        self._completions = completions
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._is_metadata_sent = False
        self._is_finished = False  # the status was sent, or the client has gone

    def begin(self, handler: Any) -> None:
        """Run the method of `handler`; without one the call is unimplemented."""
        self.handler = handler
        self._start((cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),), self._closed)
        if handler is None:
            self._finish(_UNIMPLEMENTED, "Method not found!")
        elif handler.request_streaming:
            self._run(self._requests())
        else:
            self._start((cygrpc.ReceiveMessageOperation(_NO_FLAGS),), self._received)

    # --- the context of a method ---

    def invocation_metadata(self) -> Any:
        """Return the metadata of the client, as pairs."""
        return self._metadata

    def peer(self) -> str:
        """Return the address of the client, as gRPC writes it: `ipv4:127.0.0.1:80`."""
        peer = self._call.peer()
        return peer.decode() if isinstance(peer, bytes) else str(peer)

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline, None without one."""
        remaining = self._deadline - time.time()
        return None if remaining > _NO_DEADLINE_SECONDS else max(remaining, 0.0)

    async def write(self, response: Any) -> None:
        """Send a response of a stream; return when the connection has room for more. Raises CallEnded."""
        data = self.handler.response_serializer(response)
        await self._perform((*self._initial_metadata(), cygrpc.SendMessageOperation(data, _NO_FLAGS)))

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        """End the call with a status. Raises AbortError, which ends the method."""
        if self._is_finished:
            raise CallEnded("the call has ended")
        self._finish(code.value[0], details)
        raise grpc.aio.AbortError(details)

    # --- the way of a call ---

    def _received(self, event: Any) -> None:
        data = event.batch_operations[0].message()
        # Without data the client has gone, or the core has refused the request.
        if data is not None and not self._is_finished:
            self._run(data)

    def _closed(self, event: Any) -> None:
        """The call has ended for the client, in most cases after the status."""
        if event.batch_operations[0].cancelled() and not self._is_finished:
            self._is_finished = True
            if self._task is not None:
                self._task.cancel()

    def _run(self, request: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: Any) -> None:
        """Run the method, and send its response and the status."""
        try:
            handler = self.handler
            if not handler.request_streaming:
                request = self._decoded(request)
            if handler.response_streaming:
                await self._stream(handler, request)
                self._finish(_OK, "")
            else:
                response = await handler.unary_unary(request, self)
                self._finish(_OK, "", handler.response_serializer(response))
        except (grpc.aio.AbortError, CallEnded):
            pass
        except asyncio.CancelledError:
            self._finish(_CANCELLED, "the server has cancelled the call")
        except Exception as error:
            log.exception("gRPC call failed")
            self._finish(_UNKNOWN, f"Unexpected {type(error).__name__}: {error}")
        finally:
            self._task = None  # the call must not hold itself: the core waits for its end

    async def _stream(self, handler: Any, request: Any) -> None:
        method = handler.stream_stream if handler.request_streaming else handler.unary_stream
        if inspect.isasyncgenfunction(method):
            async for response in method(request, self):
                await self.write(response)
        else:
            await method(request, self)

    async def _requests(self) -> AsyncIterator[Any]:
        """Yield the requests of a stream."""
        while True:
            event = await self._perform((cygrpc.ReceiveMessageOperation(_NO_FLAGS),))
            data = event.batch_operations[0].message()
            if data is None:
                return
            yield self._decoded(data)

    def _decoded(self, data: bytes) -> Any:
        """Return a request. Raises CallEnded if its bytes are none."""
        try:
            return self.handler.request_deserializer(data)
        except Exception as error:
            self._finish(_INTERNAL, f"the request cannot be decoded: {error}")
            raise CallEnded("the request cannot be decoded") from error

    # --- operations ---

    def _initial_metadata(self) -> tuple[Any, ...]:
        if self._is_metadata_sent:
            return ()
        self._is_metadata_sent = True
        return (cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS),)

    def _finish(self, code: int, details: str, response: bytes | None = None) -> None:
        """Send the status, after the response of a method that does not stream; nothing after the end."""
        if self._is_finished or not self._completions.is_open:
            return
        self._is_finished = True
        message = () if response is None else (cygrpc.SendMessageOperation(response, _NO_FLAGS),)
        status = cygrpc.SendStatusFromServerOperation(None, code, details, _NO_FLAGS)
        self._start((*self._initial_metadata(), *message, status), _ignore)

    async def _perform(self, operations: tuple[Any, ...]) -> Any:
        """Return the event of operations. Raises CallEnded if they cannot take place."""
        if self._is_finished or not self._completions.is_open:
            raise CallEnded("the call has ended")
        ended = asyncio.get_running_loop().create_future()

        def resolve(event: Any) -> None:
            if not ended.done():
                ended.set_result(event)

        self._start(operations, resolve)
        event = await ended
        if not event.success:
            raise CallEnded("the client has gone")
        return event

    def _start(self, operations: tuple[Any, ...], tag: Any) -> None:
        if (error := self._call.start_server_batch(operations, tag)) != 0:
            raise RuntimeError(f"gRPC's core has refused operations of a call, error {error}")


def _ignore(event: Any) -> None:
    """Take the event of operations that nobody waits for."""
