"""A process that lacks what Windows or macOS lack, as a plugin: `pytest -p tests.support.other_platform`.

Missing: uvloop, `fork`, Unix sockets, modules of Unix, and the loop's handlers of signals and of sockets.
The daemons need Linux. Their modules are imported before, and keep the functions for files that they use.

The simulation has limits: `sys.platform`, the names of files, the clocks and the sockets stay those of Linux.
`make types` checks the SDK for functions that typeshed does not have on Windows and macOS.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Any, Final, NoReturn

MODULES: Final = ("uvloop", "fcntl", "grp", "pty", "pwd", "resource", "termios")
OS_NAMES: Final = ("eventfd", "fork", "forkpty", "memfd_create", "register_at_fork", "splice", "uname")
SOCKET_NAMES: Final = ("AF_UNIX", "SO_REUSEPORT", "TCP_NOTSENT_LOWAT", "TCP_USER_TIMEOUT", "sethostname")
LOOP_METHODS: Final = (
    *("add_reader", "add_writer", "add_signal_handler"),
    *("create_unix_connection", "create_unix_server"),
)


def become_other_platform() -> None:
    """Remove all of that from this process."""
    setattr(socket, "socketpair", _socketpair)  # noqa: B010  # with fewer parameters
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # an import raises ImportError
    for module, names in ((os, OS_NAMES), (socket, SOCKET_NAMES)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in LOOP_METHODS:
        setattr(asyncio.SelectorEventLoop, name, _not_implemented)


def pytest_configure() -> None:
    """Have all tests run there, on asyncio's loop."""
    import rmq_broker.broker  # noqa: F401, PLC0415  # before its modules are missing
    import rmq_namesrv.namesrv  # noqa: F401, PLC0415
    import rmq_testing.server  # noqa: F401, PLC0415
    import tests.support.toolchain  # noqa: F401, PLC0415
    from tests.support import loops  # noqa: PLC0415

    loops.LOOPS["uvloop"] = loops.DebugLoop
    become_other_platform()


def pytest_report_header() -> str:
    """Say so."""
    return "simulated: a platform without fork, uvloop, Unix sockets and signal handlers of loops"


def _not_implemented(*arguments: Any) -> NoReturn:
    raise NotImplementedError


def _socketpair(*arguments: Any) -> tuple[socket.socket, socket.socket]:
    """Return connected sockets of the IP family, as Windows does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    return one, other
