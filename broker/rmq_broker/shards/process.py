"""The process of one shard: a broker with a connection to its supervisor.

    python -m rmq_broker.shards.process CHANNEL SUPERVISOR [-c FILE] [--set KEY=VALUE ...]

CHANNEL is the descriptor of its end of the connection, SUPERVISOR the id of the supervisor's process.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.command_line import command_parser, load_from
from rmq_remoting.daemon.deferred_answers import answer_after
from rmq_remoting.daemon.lifecycle import EXIT_FAILURE, StartError, run_command, run_daemon
from rmq_remoting.daemon.process import prepare_process
from rmq_remoting.dispatch import Dispatcher, Processor
from rmq_remoting.errors import RequestError
from rmq_remoting.tiers import InlineTier

from ..build import build_broker
from ..settings.broker import BrokerSettings, known_keys
from . import liveness
from .channel import STOP, announcement, connect
from .kinds import GROUPS, TOPICS
from .reporter import ChangeReporter

if TYPE_CHECKING:
    from rmq_remoting.answers import Result
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.configuration import Configuration
    from rmq_remoting.daemon.ready import Ready
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..broker import Broker

_PR_SET_PDEATHSIG: Final = 1
# Not SIGTERM, since it arrives several times, and a second SIGTERM ends a process at once.
_SUPERVISOR_ENDED: Final = signal.SIGUSR1
_SHARED_CODES: Final = frozenset({TOPICS.update, TOPICS.deletion, GROUPS.update, GROUPS.deletion})


class Shard:
    """A broker that reports its topics and groups to the supervisor, and takes over those of the others."""

    def __init__(self, broker: Broker, channel: socket.socket) -> None:
        self._broker = broker
        self._channel = channel
        self._connection: Connection | None = None
        # Before the broker serves: no change may be missed.
        self._reporter = ChangeReporter(broker.services.topics.table, broker.services.groups.table)
        main, fast = broker.listeners.main.dispatcher, broker.listeners.fast.dispatcher
        self._requests = _shared_requests(main)
        for dispatcher in (main, fast):
            _confirm_deletions(dispatcher, self._reporter)

    async def start(self) -> Ready:
        """Start the broker, and report its tables; return the facts to announce. Raises StartError."""
        ready = await self._broker.start()
        try:
            self._connection = await connect(self._channel, self._requests, stops_reading=True)
            self._connection.remote_address = ("supervisor", 0)
            await self._reporter.start(self._connection)
        except (OSError, RequestError) as error:
            raise StartError(f"the supervisor does not take the topics over: {error}") from error
        return ready

    async def stop(self) -> None:
        """Stop the broker. Raises OSError."""
        await self._broker.stop()
        if self._connection is not None:
            self._connection.close()


def main() -> int:
    """Run the process; return the exit code."""
    channel, supervisor = int(sys.argv[1]), int(sys.argv[2])
    has_signal = end_with(supervisor)
    sys.argv[0] = "rmq-broker"  # as error messages name it
    return run_command(partial(_command, socket.socket(fileno=channel), has_signal), sys.argv[3:])


def _command(channel: socket.socket, has_signal: bool, arguments: Sequence[str]) -> int:
    options = command_parser("rmq-broker", "One shard of a broker.").parse_args(arguments)
    configuration = load_from(options, BrokerSettings, known_keys)
    name, wait_seconds = configuration.settings.broker_name, configuration.settings.shutdown_wait_seconds

    async def build(supervisor: TaskSupervisor) -> Shard:
        Supervision(has_signal).start()
        return await _build(configuration, supervisor, channel)

    prepare_process(configuration, "rmq.broker", {"shard": name})
    return run_daemon(build, ready_text=announcement, stop_timeout_seconds=wait_seconds)


async def _build(
    configuration: Configuration[BrokerSettings], supervisor: TaskSupervisor, channel: socket.socket
) -> Shard:
    return Shard(await build_broker(configuration, supervisor), channel)


def _shared_requests(main: Dispatcher) -> Dispatcher:
    """Return a dispatcher of the requests that the supervisor sends; it needs no access key."""
    dispatcher = Dispatcher()
    for row in main.registrations():
        if row.code in _SHARED_CODES:
            dispatcher.register([row.code], row.processor, row.tier, max_body_bytes=row.max_body_bytes)
    # On the event loop: the supervisor asks whether that is blocked.
    dispatcher.register(
        [liveness.QUESTION], liveness.answer, InlineTier("supervisor", capacity=16, max_wait_ms=60_000)
    )
    return dispatcher


def _confirm_deletions(dispatcher: Dispatcher, reporter: ChangeReporter) -> None:
    """Let clients' deletions be answered when the supervisor has persisted them, too.

    Otherwise a supervisor that is killed would take a missing entry for one that the shard has lost.
    """
    for row in dispatcher.registrations():
        if row.code in (TOPICS.deletion, GROUPS.deletion):
            row.processor = partial(_delete, row.processor, reporter)


def _delete(
    processor: Processor, reporter: ChangeReporter, connection: Connection, request: RemotingCommand
) -> Result:
    result = processor(connection, request)
    return answer_after(reporter.confirmed, result, "confirm a deletion")


def end_with(supervisor: int) -> bool:
    """Let Linux send a signal if the supervisor is killed; return whether it does.

    If the supervisor was killed before this call, the process ends now.
    """
    has_signal = False
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):
            has_signal = ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SUPERVISOR_ENDED) == 0
    if os.getppid() != supervisor:
        sys.exit(EXIT_FAILURE)
    return has_signal


class Supervision:
    """Stops this process when its supervisor asks for it or ends. Belongs to the loop's thread."""

    def __init__(self, has_signal: bool) -> None:
        """Without a signal, the end of the standard input tells that the supervisor has ended."""
        self._has_signal = has_signal
        self._was_asked = False
        self._has_ended = False

    def start(self) -> None:
        """Obey from now on."""
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self.input_arrived)
        loop.add_signal_handler(_SUPERVISOR_ENDED, self.supervisor_ended)

    def input_arrived(self) -> None:
        """Read from the standard input: a request to stop, or its end."""
        if os.read(sys.stdin.fileno(), len(STOP)):
            self._was_asked = True
            self._stop()
            return
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        if not self._has_signal:
            self.supervisor_ended()

    def supervisor_ended(self) -> None:
        """Stop, or end at once if the supervisor ended while this process was stopping."""
        # The kernel sends the signal for each thread of the supervisor that had this process as its child.
        if self._has_ended:
            return
        self._has_ended = True
        if self._was_asked:
            # A second signal ended the supervisor during the shutdown: that of its shards ends at once, too.
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            self._stop()

    def _stop(self) -> None:
        # Once a shutdown has begun, the handler of SIGTERM is removed, and the signal would end the process.
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
