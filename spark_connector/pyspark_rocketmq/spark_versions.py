"""What not every PySpark 4 has: limits of a trigger came with 4.2, streams that write Arrow with 4.1."""

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
            """Never made by PySpark 4.0 and 4.1."""

        class ReadAllAvailable(ReadLimit):
            """Never made by PySpark 4.0 and 4.1."""

        class ReadMaxRows(ReadLimit):
            """Never asked for by PySpark 4.0 and 4.1."""

            def __init__(self, max_rows: int) -> None:
                self.max_rows = max_rows

        class SupportsTriggerAvailableNow:
            """Not looked for by PySpark 4.0 and 4.1, which run such queries as one batch of everything."""

    # Before, no more than rows could be written, one by one.
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", object)

HAS_TRIGGER_LIMITS: Final = hasattr(datasource.DataSourceStreamReader, "getDefaultReadLimit")
"""Whether Spark says where a batch starts, and how much it may take, when it asks where it ends."""

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
