"""One Spark session for all tests in this folder, and clusters to read from and write to."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.small_cluster import SmallCluster
from tests.support.jvm import QUICK
from tests.support.requirements import java_or_skip

_TEST_TIMEOUT_SECONDS = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Apply the time limit to test functions only: the first test's fixtures start Spark."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TEST_TIMEOUT_SECONDS, func_only=True))


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """Every test here starts Spark, which needs Java."""
    java_or_skip()


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two threads, whose files are below pytest's folder."""
    home = tmp_path_factory.mktemp("spark")
    # By default, Spark starts its workers with the python3 of the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(QUICK)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("rocketmq connector tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(home / "local"))
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} -Djava.io.tmpdir={home}")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    """A shared name server and broker, for tests that do not stop them and use topics of their own."""
    with SmallCluster() as running:
        yield running


@pytest.fixture
def own_cluster() -> Iterator[SmallCluster]:
    """A name server and a broker for one test, which may stop and restart them."""
    with SmallCluster() as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A unique topic name."""
    return f"T{uuid.uuid4().hex[:12]}"
