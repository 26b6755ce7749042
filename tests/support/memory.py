"""Memory that code under test allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def allocated_bytes(call: Callable[[], object]) -> int:
    """Return the memory that a call has allocated and that is still in use after it."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
