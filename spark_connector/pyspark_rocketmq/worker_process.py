"""Preparation of the Python worker process, in which Spark runs one task after the other.

Workers are shared: Spark runs Python functions of the user and tasks of other sources in the same process.
Both changes are bounded, and the option `tuneWorkers` turns them off.
"""

from __future__ import annotations

import gc
from functools import cache
from typing import Final

from rmq_remoting.allocator import keep_freed_memory

# About the size of a batch with all its columns.
_KEPT_BYTES: Final = 32 * 1024 * 1024


@cache
def prepare_worker() -> None:
    """Prepare the process for reading and writing. Every task calls it; only the first call has an effect.

    After every task, Spark runs a garbage collection over the whole process. Objects that exist by now
    (imported modules above all) live as long as the process. Scanning them took an eighth of the time of
    reading 100,000 messages, so they are excluded from collection. A collection comes first, so that no
    garbage of other code is kept. An object of other code that is alive now, and becomes part of a garbage
    cycle later, stays until the worker ends. Freed memory of up to 32 MiB stays with the process.
    """
    keep_freed_memory(_KEPT_BYTES)
    gc.collect()
    gc.freeze()
