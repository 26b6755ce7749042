"""The C library's memory allocator: freed memory stays with the process for the next allocation."""

from __future__ import annotations

import ctypes
from typing import Final

# Linux, malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory(most_bytes: int) -> bool:
    """Keep up to `most_bytes` free at the end of the heap, and allocate blocks of up to that size from it.

    By default glibc returns freed blocks of 128 KiB and more to the operating system at once. A process that
    receives and sends megabytes then has the same pages mapped again and again, which took a tenth of its
    time. Return False if the C library has no such setting; all else works without it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return all(mallopt(option, most_bytes) == 1 for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD))
