"""The process of one shard, as its supervisor sees it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from .channel import STOP, announced, connect

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection, RequestHandler
    from rmq_remoting.daemon.ready import Ready

CLEAN_END: Final = "exit code 0"

_READY: Final = b"ready "
# -P: modules in the current folder do not count.
_PROGRAM: Final = (sys.executable, "-P", "-m", "rmq_broker.shards.process")


class Child(Protocol):
    """One run of a shard's process."""

    async def start(self) -> Connection:
        """Start the process; return the connection to it. Raises OSError."""
        ...

    async def ready(self) -> Ready | None:
        """Return the facts that it announces; None if it has ended instead."""
        ...

    async def ended(self) -> str:
        """Return the cause of its end, once it has ended."""
        ...

    def ask_to_stop(self) -> None:
        """Let it shut down gracefully; a second call has no effect."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class ShardChild:
    """A process that runs `process.py`, with pipes to its standard input and output and a connection.

    Its log goes to the standard error of the supervisor.
    """

    def __init__(self, arguments: Sequence[str], handler: RequestHandler) -> None:
        """`arguments` are those of the shard's command line; `handler` gets its requests."""
        self._arguments = arguments
        self._handler = handler
        self._process: asyncio.subprocess.Process | None = None
        self._was_asked_to_stop = False

    async def start(self) -> Connection:
        """Start the process; return the connection to it. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # A session of its own, or the terminal's Ctrl-C would reach all shards and the supervisor.
                self._process = await asyncio.create_subprocess_exec(
                    *_PROGRAM,
                    str(theirs.fileno()),
                    str(os.getpid()),
                    *self._arguments,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        return await connect(ours, self._handler, stops_reading=False)

    async def ready(self) -> Ready | None:
        """Return the facts that it announces; None if it has ended instead."""
        output = self._running().stdout
        assert output is not None
        while line := await output.readline():
            if line.startswith(_READY):
                return announced(line.removeprefix(_READY))
        return None

    async def ended(self) -> str:
        """Return the cause of its end, once it has ended."""
        code = await self._running().wait()
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"signal {signal.Signals(-code).name}"
        return f"exit code {code}"

    def ask_to_stop(self) -> None:
        """Let it shut down gracefully; a second call has no effect."""
        if self._process is None or self._process.returncode is not None or self._was_asked_to_stop:
            return
        self._was_asked_to_stop = True
        assert self._process.stdin is not None
        self._process.stdin.write(STOP)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the process of the shard was not started")
        return self._process
