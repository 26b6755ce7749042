"""The port for the 5.x clients that `--grpc` and `--standalone` choose."""

from __future__ import annotations

import logging
import socket
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .settings.broker import BrokerSettings

log = logging.getLogger("rmq.broker")

_GRPC_PORT: Final = 8081
# The packages of the extra `proxy`, as they are imported.
_PACKAGES: Final = ("grpc", "grpc_health", "grpc_reflection")


def choose_grpc_port(settings: BrokerSettings) -> None:
    """Set `grpcServerPort` unless the operator has set it: to 8081, or to any free port if that is taken.

    gRPC stays off, with a line in the log, if its packages are missing or other settings forbid it.
    """
    if "grpc_server_port" in settings.model_fields_set:
        return
    missing = next((name for name in _PACKAGES if find_spec(name) is None), None)
    if missing is not None:
        log.info(
            "gRPC is off, the package %s is not installed; pip install 'rmq[proxy]' adds it",
            missing,
        )
        return
    settings.grpc_server_port = _GRPC_PORT
    try:
        settings.check_grpc()
    except ValueError as error:
        log.info("gRPC is off cause=%s", error)
        settings.grpc_server_port = 0
        return
    if _is_free(settings.bind_address, _GRPC_PORT):
        return
    log.warning(
        "gRPC port taken port=%d; any free port is used, set grpcServerPort to choose one", _GRPC_PORT
    )
    with socket.create_server((settings.bind_address, 0), family=_family(settings.bind_address)) as probe:
        settings.grpc_server_port = int(probe.getsockname()[1])


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port), family=_family(host)).close()
    except OSError:
        return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
