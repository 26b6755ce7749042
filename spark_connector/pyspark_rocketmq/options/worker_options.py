"""Options of Spark's Python workers, shared by reading and writing."""

from __future__ import annotations

from .option_types import Flag
from .parsing import OptionGroup, option


class WorkerOptions(OptionGroup):
    """Python workers"""

    tune_workers: Flag = option(
        "tuneWorkers",
        "Let Spark's Python workers keep up to 32 MiB of freed memory, and leave objects that exist at the "
        "first task out of garbage collection. Workers are shared with other Python code of the application. "
        "The first task of a worker decides.",
        True,
    )
