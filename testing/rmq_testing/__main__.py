"""`python -m rmq_testing -- COMMAND`: run a command beside a broker that exists only for it.

For tests in any language. The command gets the addresses by environment variables, and its exit code becomes
that of this program.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from .blocking import BrokerForTests

_DESCRIPTION: Final = """\
Run a command beside a RocketMQ name server and broker on free ports, with an empty store.

The command gets these environment variables:
  NAMESRV_ADDR     address of the name server; Apache's clients read it
  RMQ_BROKER_ADDR  address of the broker

example:
  python -m rmq_testing --topic orders:4 -- mvn test
"""
_NOT_FOUND: Final = 127
_LOOK_FOR_SIGNALS_SECONDS: Final = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code of COMMAND, or 128 and the number of its signal."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.ERROR)
    with BrokerForTests(topics=dict(options.topic), settings=dict(options.set)) as broker:
        addresses = {"NAMESRV_ADDR": broker.namesrv_address, "RMQ_BROKER_ADDR": broker.broker_address}
        try:
            code = _run(options.command, {**os.environ, **addresses})
        except OSError as error:
            print(f"rmq_testing: {options.command[0]} cannot be run: {error.strerror}", file=sys.stderr)
            return _NOT_FOUND
    return 128 - code if code < 0 else code


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command, and pass the signals on to it that end this process. Raises OSError."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # signals that came while the command was being started

    def forward(number: int, _: object) -> None:
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    def leave_it_to_command(_: int, __: object) -> None:
        """Do nothing: a terminal sends SIGINT to the command, too."""

    handlers = {signal.SIGTERM: forward, signal.SIGINT: leave_it_to_command}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        process = subprocess.Popen(command, env=environment)
        for number in early:
            process.send_signal(number)
        while True:
            # The system may hand a signal to another thread, which does not end a wait of this one.
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_LOOK_FOR_SIGNALS_SECONDS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rmq_testing",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--topic",
        type=_topic,
        action="append",
        default=[],
        metavar="NAME[:QUEUES]",
        help="a topic to create, with 4 queues by default; may be repeated",
    )
    parser.add_argument(
        "--set",
        type=_assignment,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the broker, by Apache's key; may be repeated",
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="the command, after --")
    return parser


def _topic(text: str) -> tuple[str, int]:
    name, _, queues = text.partition(":")
    if not name or (queues and not queues.isdecimal()) or queues == "0":
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME or NAME:QUEUES")
    return name, int(queues or 4)


def _assignment(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, value


if __name__ == "__main__":
    sys.exit(main())
