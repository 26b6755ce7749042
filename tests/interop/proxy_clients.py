"""Apache's Python client for 5.x in a process of its own: the tests' side of `python/main.py`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.outcome import Event
from tests.support.running import RunningProgram
from tests.support.toolchain import PYTHON_CLIENT

_CALL_TIMEOUT_SECONDS = 40.0


class Refused(Exception):
    """The client raised an exception: its class, code and text."""

    def __init__(self, error: Event) -> None:
        super().__init__(f"{error['class']} {error['code']}: {error['text']}")
        self.code: int | None = error["code"]


class PythonClients:
    """Clients in one process, each with a name. Not bound to an event loop."""

    def __init__(self, program: RunningProgram) -> None:
        self._program = program
        self._numbers = count(1)

    async def call(self, method: str, /, *, timeout_s: float = _CALL_TIMEOUT_SECONDS, **arguments: object) -> Any:
        """Call a method of `Clients` in `main.py` and return its value. Raises Refused, TimeoutError."""
        number = next(self._numbers)
        self._program.write_line(json.dumps({"call": number, "method": method, "arguments": arguments}))
        (answer,) = await self._program.wait_for(f"answer {number}", 1, timeout_s)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["value"]

    def events(self, name: str, wanted: Callable[[Event], bool]) -> list[Event]:
        """The wanted events of this name so far."""
        return [event for event in self._program.named(name) if wanted(event)]


@contextmanager
def python_clients(address: str, home: Path) -> Iterator[PythonClients]:
    """Start the program for a proxy's address; its clients write their logs below `home`."""
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(PYTHON_CLIENT), address]
    with RunningProgram(command, home / "stderr.log", {**os.environ, "HOME": str(home)}) as program:
        yield PythonClients(program)
