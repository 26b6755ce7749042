"""The command `rmq-proxy`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.command_line import command_parser, load_from, print_config
from rmq_remoting.daemon.configuration import Configuration
from rmq_remoting.daemon.lifecycle import run_command, run_daemon

from .apache_settings import known_keys, read_json
from .daemon_settings import ProxyDaemonSettings

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from .proxy import Proxy

_DESCRIPTION: Final = (
    "RocketMQ proxy: serves the 5.x clients, which speak gRPC, from the brokers of a cluster."
)
# Time beyond grpcShutdownTimeSeconds for the messages that the proxy keeps invisible, and the connections.
_STOP_MARGIN_SECONDS: Final = 10.0


def main() -> int:
    """Run the command, and return its exit code."""
    return run_command(_command)


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser("rmq-proxy", _DESCRIPTION)
    parser.add_argument("-n", "--namesrv", metavar="HOST:PORT[;...]", help="name servers (namesrvAddr)")
    parser.add_argument("--port", metavar="PORT", help="port to listen on (grpcServerPort; 8081 by default)")
    parser.add_argument(
        "-pc", "--json", metavar="FILE", type=Path, help="settings in the form of Apache's rmq-proxy.json"
    )
    return parser


def _command(arguments: Sequence[str]) -> int:
    options = argument_parser().parse_args(arguments)
    in_json = [] if options.json is None else read_json(options.json)
    configuration = load_from(
        options,
        ProxyDaemonSettings,
        known_keys,
        {"-n": ("namesrvAddr", options.namesrv), "--port": ("grpcServerPort", options.port)},
        lambda given: in_json,
    )
    if options.print_config:
        print_config(configuration)
        return 0
    return _serve(configuration, options.ready_file)


def _serve(configuration: Configuration[ProxyDaemonSettings], ready_file: Path | None) -> int:
    # Imported only to serve, so that --help and --print-config are fast.
    from rmq_remoting.daemon.process import prepare_process  # noqa: PLC0415

    from .proxy import Proxy  # noqa: PLC0415

    settings = configuration.settings

    async def build(supervisor: TaskSupervisor) -> Proxy:
        return Proxy(settings, supervisor)

    prepare_process(configuration, "rmq.proxy")
    stop_seconds = settings.grpc_shutdown_time_seconds + _STOP_MARGIN_SECONDS
    return run_daemon(build, ready_file=ready_file, stop_timeout_seconds=stop_seconds)


if __name__ == "__main__":
    sys.exit(main())
