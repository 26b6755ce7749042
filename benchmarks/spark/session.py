"""The Spark session that all measurements use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
_NO_SETTINGS: Final[Mapping[str, str]] = {}


@contextmanager
def spark_session(
    home: Path, jars: Sequence[Path], settings: Mapping[str, str] = _NO_SETTINGS
) -> Iterator[SparkSession]:
    """Create a session with local[2] and its files below `home`. `settings`: further settings of Spark."""
    # By default, Spark starts its workers with the python3 of the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    _keep_bytecode(home / "bytecode")
    builder = SparkSession.builder.master("local[2]").appName("rocketmq beside kafka")
    own_settings = {
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.local.dir": str(home / "local"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={home} -Djava.io.tmpdir={home}",
    }
    for name, value in (_SETTINGS | own_settings | dict(settings)).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _keep_bytecode(folder: Path) -> None:
    """Have Python processes of the session keep bytecode, as that of an installed package is kept.

    With PYTHONDONTWRITEBYTECODE, each process would compile the connector, but not PySpark. A cold start
    inherits the folder of its parent, and so finds its modules compiled.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(folder))


def jvm_pid(spark: SparkSession) -> int:
    """Return the process id of the JVM, which is driver and executor."""
    jvm: Any = spark.sparkContext._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())
