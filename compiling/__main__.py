"""Build the compiled form of this checkout, and let this environment use it.

RMQ_COMPILE=0 keeps the interpreted form. If the compiled form cannot be built, RMQ_COMPILE=1 ends with an
error. Otherwise a line says why it cannot be built, and the interpreted form is used.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

from .c_files import CompilationFailed
from .form import NoCompiler, Tools, compiled_form
from .link import is_linked, link, states_of, unlink
from .sources import sources

_ROOT: Final = Path(__file__).resolve().parents[1]


def main() -> int:
    """Return the exit code."""
    wanted = os.environ.get("RMQ_COMPILE", "")
    if wanted not in ("", "0", "1"):
        print(f"RMQ_COMPILE={wanted} is invalid: it must be 0, 1 or empty", file=sys.stderr)
        return 2
    if wanted == "0":
        unlink()
        print("RMQ_COMPILE=0: the broker runs interpreted")
        return 0
    try:
        _compile_and_link()
    except (NoCompiler, CompilationFailed) as reason:
        unlink()
        print(f"The broker runs interpreted, at about twice the CPU per message: {reason}", file=sys.stderr)
        return 1 if wanted == "1" else 0
    return 0


def _compile_and_link() -> None:
    """Raises NoCompiler, CompilationFailed."""
    tools = Tools.find(_ROOT)
    if is_linked(_ROOT, tools.digest):
        return
    began = time.monotonic()
    print("Compiling the hot path (about a minute)", flush=True)
    paths = sources(_ROOT)
    states = states_of(_ROOT, paths)
    folder = compiled_form(_ROOT, tools, paths)
    link(_ROOT, folder, tools.digest, states)
    print(f"Compiled in {time.monotonic() - began:.0f} s: {folder}")


if __name__ == "__main__":
    sys.exit(main())
