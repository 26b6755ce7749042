"""The command `rmq-health`: send a request that only a running name server, broker or proxy answers.

    rmq-health [namesrv|broker|proxy|proxy-remoting] [HOST:PORT]

    exit code 0: the daemon answers; 1: it does not, with the cause

It asks in plain text, and then over TLS. A port that demands certificates of clients needs `--certificate`.

A proxy has two ports: `proxy` asks that of gRPC, `proxy-remoting` that for clients of the remoting protocol.

Without a role the command asks the daemon that listens on its usual port on this machine, as in a container.

A broker that refuses messages, for example because of a full disk, counts as alive: a restart would not help.
The metric `rmq_store_refuses_writes` tells whether a broker accepts messages.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..codes import RequestCode, ResponseCode
from ..command import RemotingCommand
from ..framing import FrameDecoder, encode_frame
from .grpc_health import NotServing, check_grpc
from .health_connection import OwnCertificate, ask_in_plain_text_or_tls, left_seconds

_LOCALHOST = "127.0.0.1"
_READ_BYTES = 64 * 1024


class Unhealthy(Exception):
    """Nothing listens at the address, or no good answer came in time."""


class _Unanswered(Unhealthy):
    """The port has ended the connection: it may want TLS."""


@dataclass(frozen=True, slots=True)
class Role:
    """A kind of daemon: its usual port, and the request that it answers; None: gRPC's health check."""

    name: str
    port: int
    request: RequestCode | None
    body: bytes = b""


ROLES = {
    role.name: role
    for role in (
        Role("broker", 10911, RequestCode.GET_BROKER_RUNTIME_INFO),
        Role("namesrv", 9876, RequestCode.GET_BROKER_CLUSTER_INFO),
        Role("proxy", 8081, None),
        # Without a subscription to check, the proxy asks no broker.
        Role("proxy-remoting", 8080, RequestCode.CHECK_CLIENT_CONFIG, b"{}"),
    )
}


def check(
    role: Role, host: str, port: int, timeout_seconds: float, own: OwnCertificate | None = None
) -> None:
    """Send the request to this address; the timeout bounds all of it. Raises Unhealthy, OSError.

    `own` is shown to ports that demand certificates of clients.
    """
    if role.request is None:
        try:
            check_grpc(host, port, timeout_seconds, own)
        except NotServing as error:
            raise Unhealthy(str(error)) from error
        return
    deadline = time.monotonic() + timeout_seconds
    request = RemotingCommand.request(role.request, body=role.body)

    def ask(connection: socket.socket, is_encrypted: bool) -> None:
        connection.sendall(encode_frame(request))
        _check(_response(connection, deadline), request, role)

    ask_in_plain_text_or_tls(host, port, deadline, ask, _Unanswered, own=own)


def _check(response: RemotingCommand, request: RemotingCommand, role: Role) -> None:
    """Raise Unhealthy for a response that shows no life."""
    if response.opaque != request.opaque:
        raise Unhealthy("the response belongs to another request")
    # A daemon with access control refuses the request, and is alive.
    if response.code not in (ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION):
        raise Unhealthy(f"the {role.name} answers with code {response.code}: {response.remark}")


def _response(connection: socket.socket, deadline: float) -> RemotingCommand:
    decoder = FrameDecoder()
    while True:
        connection.settimeout(left_seconds(deadline))
        data = connection.recv(_READ_BYTES)
        if not data:
            raise _Unanswered("the connection was closed without a response")
        for command in decoder.feed(data):
            return command
        if decoder.failure is not None:
            raise Unhealthy(f"the response is not of the RocketMQ protocol: {decoder.failure}")


def _listening() -> Role:
    """Return the role of the daemon that listens on its usual port. Raises Unhealthy."""
    for role in ROLES.values():
        try:
            socket.create_connection((_LOCALHOST, role.port), timeout=1.0).close()
        except OSError:
            continue
        return role
    ports = ", ".join(f"{role.port} ({role.name})" for role in ROLES.values())
    raise Unhealthy(f"nothing listens on {ports}; for another address: rmq-health ROLE HOST:PORT")


def _target(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> tuple[Role, str, int]:
    role = _listening() if arguments.role is None else ROLES[arguments.role]
    if arguments.address is None:
        return role, _LOCALHOST, role.port
    host, _, port = arguments.address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        parser.error(f"HOST:PORT expected, with a port from 1 to 65535, not {arguments.address!r}")
    return role, host.strip("[]"), int(port)


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="rmq-health", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "role",
        nargs="?",
        choices=list(ROLES),
        help="kind of daemon; by default, the one that listens on its usual port",
    )
    parser.add_argument(
        "address",
        nargs="?",
        metavar="HOST:PORT",
        help="its address; by default, its usual port on this machine",
    )
    parser.add_argument(
        "--timeout", type=float, default=4.0, metavar="SECONDS", help="the longest wait for the answer"
    )
    parser.add_argument(
        "--certificate",
        type=Path,
        metavar="FILE",
        help="own certificate in PEM, for ports that demand one of clients",
    )
    parser.add_argument("--key", type=Path, metavar="FILE", help="its key, if it is in another file")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask the daemon; return the exit code."""
    parser = argument_parser()
    options = parser.parse_args(arguments)
    try:
        role, host, port = _target(parser, options)
        own = None if options.certificate is None else OwnCertificate(options.certificate, options.key)
        check(role, host, port, options.timeout, own)
    except (Unhealthy, OSError) as error:
        print(f"rmq-health: {error}", file=sys.stderr)
        return 1
    print(f"the {role.name} at {host}:{port} answers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
