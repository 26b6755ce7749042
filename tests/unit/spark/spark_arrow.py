"""The Arrow schema that Spark expects of a source."""

from __future__ import annotations

from typing import Any

from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

from pyspark_rocketmq.spark_versions import HAS_TRIGGER_LIMITS


def to_arrow_schema(schema: StructType) -> Any:
    """Convert a schema as Spark does."""
    # Before PySpark 4.2, the default time zone was none instead of UTC.
    given = {"timezone": "UTC"} if HAS_TRIGGER_LIMITS else {}
    return types.to_arrow_schema(schema, **given)  # type: ignore[arg-type]
