"""A sentence for platforms without what the broker needs; to be imported before the broker's modules."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

_PLATFORM: Final[str] = sys.platform

if _PLATFORM != "linux" or find_spec("fcntl") is None:
    raise ImportError(
        "rmq_testing runs the broker in this process, and the broker needs Linux: run these tests in a "
        "container or in WSL, or use a broker elsewhere"
    )
