"""The platforms that daemons run on: Linux. The SDK, `rmq` and `rmq-health` run elsewhere, too.

A Python that is newer than the tested ones gets a warning, here and in the Makefile.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

NEWEST_TESTED_PYTHON: Final = (3, 15)

# Names that users know, by `sys.platform`.
_NAMES: Final = {"win32": "Windows", "cygwin": "Cygwin", "darwin": "macOS"}
_WITHOUT_WSL: Final = "in a container"
_WITH_WSL: Final = "in WSL or in a container"


def run_on_linux(program: str, module: str) -> int:
    """Import a module, run its `main`, and return the exit code. Elsewhere print a sentence and return 1.

    Windows lacks modules that the modules of daemons import. macOS lacks functions that the broker needs for
    files (`posix_fallocate`, reads with RWF_NOWAIT).
    """
    refusal = platform_refusal(program)
    if refusal is not None:
        print(refusal, file=sys.stderr)
        return 1
    warning = untested_python()
    if warning is not None:
        print(f"{program}: {warning}", file=sys.stderr)
    code: int = import_module(module).main()
    return code


def platform_refusal(program: str) -> str | None:
    """Return the sentence that a program needs Linux, and a cure; None on Linux."""
    here: str = sys.platform
    if here == "linux":
        return None
    cure = _WITH_WSL if here in ("win32", "cygwin") else _WITHOUT_WSL
    return (
        f"{program} runs on Linux only, and this is {_NAMES.get(here, here)}; run it {cure}. The SDK and the "
        "commands rmq and rmq-health run on every platform"
    )


def untested_python() -> str | None:
    """Return a warning that this Python is newer than the tested ones; None for a tested one."""
    here = sys.version_info[:2]
    if here <= NEWEST_TESTED_PYTHON:
        return None
    version, newest = (".".join(map(str, each)) for each in (here, NEWEST_TESTED_PYTHON))
    return f"Python {version} has not been tested; if a package fails on it, use Python {newest}"
