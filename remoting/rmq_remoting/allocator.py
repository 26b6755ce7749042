"""The C library's memory allocator: what is freed, and soon wanted again, stays with the process."""

from __future__ import annotations

import ctypes
from typing import Final

# Linux, malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory(most_bytes: int) -> bool:
    """Keep up to so many bytes free at the end of the heap, and have blocks of up to that size come from it.

    By default glibc gives back blocks of 128 KiB and more as soon as they are free: who receives and sends
    messages by the megabyte then has the system make the same pages again and again, which took a tenth of
    the time of it. False where the C library has no such setting; the rest works as well there.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return all(mallopt(option, most_bytes) == 1 for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD))
