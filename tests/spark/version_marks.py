"""Marks for tests that some versions of PySpark cannot pass."""

from __future__ import annotations

from typing import Final

import pytest
from pyspark.sql import datasource

from pyspark_rocketmq.spark_versions import HAS_ARROW_STREAM_WRITER, HAS_TRIGGER_LIMITS, VERSION

needs_trigger_limits: Final = pytest.mark.skipif(
    not HAS_TRIGGER_LIMITS, reason=f"limits of a trigger came with PySpark 4.2; this is {VERSION}"
)
needs_stream_sink: Final = pytest.mark.skipif(
    not HAS_ARROW_STREAM_WRITER, reason=f"streaming sinks of Arrow came with PySpark 4.1; this is {VERSION}"
)
needs_filters: Final = pytest.mark.skipif(
    not hasattr(datasource, "Filter"),
    reason=f"filters are told to sources from PySpark 4.1 on; this is {VERSION}",
)
