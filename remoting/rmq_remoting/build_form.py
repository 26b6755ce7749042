"""The form that the hot path runs in: compiled, or from its Python sources (docs/compiling.md)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from . import framing

# Every module of the hot path has the same form as this one.
IS_COMPILED: Final = Path(framing.__file__).suffix != ".py"
BUILD_FORM: Final = "compiled" if IS_COMPILED else "interpreted"


def why_interpreted() -> str:
    """Return why the hot path runs interpreted, and how to compile it."""
    # `python -m compiling` put this module into the environment of a checkout.
    linked = sys.modules.get("rmq_compiled_form")
    if linked is not None and linked.FINDER.reason:
        return f"{linked.FINDER.reason}; `make compile` compiles the checkout"
    return "it was installed without its compiled form; `make wheel` builds a wheel that has it"
