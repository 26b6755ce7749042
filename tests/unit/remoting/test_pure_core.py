"""The protocol's core needs no event loop: none of its modules imports asyncio."""

from __future__ import annotations

import subprocess
import sys

_CORE = ["exchange", "message_codec", "bodies.route", "headers.send", "headers.pull", "headers.pop"]


def test_the_core_does_not_import_asyncio() -> None:
    modules = ", ".join(f"rmq_remoting.{name}" for name in _CORE)
    program = f"import sys, {modules}; print('asyncio' in sys.modules, 'ssl' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False False\n"
