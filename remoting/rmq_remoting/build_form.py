"""The form that the hot path runs in: from its Python sources, or compiled from them (`make wheel`)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from . import framing

# Every module of the hot path has the same form as this one.
IS_COMPILED: Final = Path(framing.__file__).suffix != ".py"
BUILD_FORM: Final = "compiled" if IS_COMPILED else "interpreted"
