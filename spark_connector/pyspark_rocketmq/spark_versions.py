"""What not every PySpark 4 has: limits of a trigger came with 4.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit:
            """Never made by PySpark 4.0 and 4.1."""

        class ReadAllAvailable(ReadLimit):
            """Never made by PySpark 4.0 and 4.1."""

        class ReadMaxRows(ReadLimit):
            """Never asked for by PySpark 4.0 and 4.1."""

            def __init__(self, max_rows: int) -> None:
                self.max_rows = max_rows

        class SupportsTriggerAvailableNow:
            """Not looked for by PySpark 4.0 and 4.1, which run such queries as one batch of everything."""


__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]
