"""Features that some versions of PySpark 4 lack.

Limits per trigger came with PySpark 4.2, streaming sinks that take Arrow batches with 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import datasource

VERSION: Final = pyspark.__version__

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
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
            """Placeholder: PySpark 4.0 and 4.1 never create it."""

        class ReadAllAvailable(ReadLimit):
            """Placeholder: PySpark 4.0 and 4.1 never create it."""

        class ReadMaxRows(ReadLimit):
            """Placeholder: PySpark 4.0 and 4.1 never ask for it."""

            def __init__(self, max_rows: int) -> None:
                self.max_rows = max_rows

        class SupportsTriggerAvailableNow:
            """Placeholder: PySpark 4.0 and 4.1 ignore it and run such queries as one batch of the whole
            backlog.
            """

    # Earlier versions accept only writers that take one row at a time.
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", object)

HAS_TRIGGER_LIMITS: Final = hasattr(datasource.DataSourceStreamReader, "getDefaultReadLimit")
"""Whether Spark passes the start of a batch and its limit when it asks for the end of the batch."""

HAS_ARROW_STREAM_WRITER: Final = hasattr(datasource, "DataSourceStreamArrowWriter")


__all__ = [
    "HAS_ARROW_STREAM_WRITER",
    "HAS_TRIGGER_LIMITS",
    "VERSION",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]
