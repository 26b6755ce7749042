"""The command `rmq-namesrv`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.command_line import command_parser, load_from, print_config
from rmq_remoting.daemon.configuration import Configuration
from rmq_remoting.daemon.lifecycle import run_command, run_daemon

from .config import NamesrvSettings, known_keys

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

_DESCRIPTION: Final = "RocketMQ name server: answers clients with the routes of topics."


def main() -> int:
    """Run the command, and return its exit code."""
    return run_command(_command)


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser("rmq-namesrv", _DESCRIPTION)
    parser.add_argument("--port", metavar="PORT", help="port to listen on (listenPort; 9876 by default)")
    parser.add_argument(
        "--print-processors", action="store_true", help="print the tier of each request code, and exit"
    )
    return parser


def _command(arguments: Sequence[str]) -> int:
    options = argument_parser().parse_args(arguments)
    configuration = load_from(options, NamesrvSettings, known_keys, {"--port": ("listenPort", options.port)})
    if options.print_config:
        print_config(configuration)
        return 0
    if options.print_processors:
        _print_processors(configuration)
        return 0
    return _serve(configuration, options.ready_file)


def _print_processors(configuration: Configuration[NamesrvSettings]) -> None:
    from rmq_remoting.daemon.processor_listing import processor_listing  # noqa: PLC0415

    from .namesrv import Namesrv  # noqa: PLC0415

    print(processor_listing(Namesrv(configuration).dispatcher), end="")


def _serve(configuration: Configuration[NamesrvSettings], ready_file: Path | None) -> int:
    # Imported only to serve, so that --help and --print-config are fast.
    from rmq_remoting.daemon.process import prepare_process  # noqa: PLC0415

    from .namesrv import Namesrv  # noqa: PLC0415

    async def build(supervisor: TaskSupervisor) -> Namesrv:
        return Namesrv(configuration, supervisor)

    prepare_process(configuration, "rmq.namesrv")
    stop_seconds = configuration.settings.shutdown_wait_seconds
    return run_daemon(build, ready_file=ready_file, stop_timeout_seconds=stop_seconds)


if __name__ == "__main__":
    sys.exit(main())
