"""Reflection of the gRPC server, whose packages and descriptors are loaded at its first call.

Few servers are ever asked, and the packages take 5 ms of the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import grpc

from .protocol.pool import POOL

REFLECTION_SERVICE: Final = "grpc.reflection.v1alpha.ServerReflection"
_METHOD: Final = "ServerReflectionInfo"
_PATH: Final = f"/{REFLECTION_SERVICE}/{_METHOD}"


class LateReflection(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """The handler of reflection calls."""

    def __init__(self, services: Sequence[str]) -> None:
        """`services` are the full names that a client may list, besides that of reflection itself."""
        self._services = (*services, REFLECTION_SERVICE)
        self._handler: Any = None

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call, None for a call of another service."""
        if handler_call_details.method != _PATH:
            return None
        if self._handler is None:
            self._handler = _reflection_handler(self._services)
        return self._handler


def _reflection_handler(services: Sequence[str]) -> Any:
    from grpc_reflection.v1alpha import reflection_pb2  # noqa: PLC0415
    from grpc_reflection.v1alpha.reflection import aio  # noqa: PLC0415

    servicer = aio.ReflectionServicer(services, pool=POOL)
    return grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
