"""Writing parts of files again that a failed flush may have left in the page cache alone.

When the disk refuses a page, Linux reports that to one flush and keeps the page as if it had been written. A
flush by a later process finds nothing to do and succeeds. Such pages reach the disk only if they are written
once more.
"""

from __future__ import annotations

import os
from typing import Final

_CHUNK_BYTES: Final = 1024 * 1024


def write_again(descriptor: int, begin: int, end: int) -> None:
    """Write a range of a file with its present content, which needs no further space on most file systems.

    A range behind the end of the file is left out. Raises OSError; blocks.
    """
    while begin < end and (content := os.pread(descriptor, min(_CHUNK_BYTES, end - begin), begin)):
        begin += os.pwrite(descriptor, content, begin)
