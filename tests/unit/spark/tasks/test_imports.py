"""Imports of the processes that Spark starts: they take most of the time until these are ready."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pyspark_rocketmq
from pyspark_rocketmq.batch_reader import BatchReader
from pyspark_rocketmq.columns import arrow_schema
from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.stream_reader import StreamReader
from pyspark_rocketmq.tasks.partitions import TaskPartition
from pyspark_rocketmq.tasks.ranges import QueueRange, ReadTask
from tests.unit.spark.options.samples import READING, WRITING

_MODULES: Final = {
    "",
    "batch_reader",
    "columns",
    "decoding",
    "decoding.column_decoder",
    "decoding.normalization",
    "decoding.properties",
    "decoding.records",
    "decoding.rows",
    "decoding.segments",
    "errors",
    "limits",
    "offsets",
    "retries",
    "source",
    "spark_versions",
    "stream_losses",
    "stream_position",
    "stream_reader",
    "tasks",
    "tasks.connection_pool",
    "tasks.fetching",
    "tasks.partitions",
    "tasks.pull_size",
    "tasks.ranges",
    "tasks.task_reading",
    "worker_process",
}
# Parts of the SDK that a pull does not need.
_NOT_OF_THE_SDK: Final = ("admin", "blocking", "consumer", "producer", "trace")

# Modules of this project that each process may import.
_MOST_OF_A_TASK: Final = 117
_MOST_OF_A_STREAM: Final = 131

# Parts that the process of a stream on the driver does without.
_NOT_OF_THE_DRIVER: Final = (
    "pyspark_rocketmq.decoding",
    "pyspark_rocketmq.tasks.fetching",
    "pyspark_rocketmq.tasks.task_reading",
    "pyarrow.compute",
    "pydantic",
    "rmq_client.admin.admin",
    "rmq_client.blocking",
    "rmq_client.consumer",
    "rmq_client.producer",
    "rmq_client.trace",
)

_START_STREAM: Final = """
import json, sys
from pyspark_rocketmq import RocketMQDataSource
made = RocketMQDataSource(json.loads(sys.stdin.read()))
made.streamReader(made.schema())
import pyspark_rocketmq.driver.stream_offsets
print(json.dumps(sorted(sys.modules)))
"""
_START_WRITE: Final = """
import json, pickle, sys
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_rocketmq import RocketMQDataSource
made = RocketMQDataSource(json.loads(sys.stdin.read()))
writer = made.writer(StructType([StructField("body", BinaryType())]), False)
pickle.loads(pickle.dumps(writer)).commit([])
print(json.dumps(sorted(sys.modules)))
"""
_UNPICKLE: Final = """
import json, pickle, sys
for pickled in pickle.load(sys.stdin.buffer):
    pickle.loads(pickled)
import pyspark_rocketmq.tasks.task_reading
print(json.dumps(sorted(sys.modules)))
"""


def _of_this_project(imported: Iterable[str]) -> list[str]:
    linked = {"rmq_compiled_form", "rmq__mypyc"}  # those of the compiled form
    return [each for each in imported if each.startswith(("pyspark_rocketmq", "rmq_")) and each not in linked]


def _imported_by(program: str, options: Mapping[str, str]) -> list[str]:
    """Return the modules of a process that runs a program with these options."""
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(options), capture_output=True, check=True, text=True
    )
    found: list[str] = json.loads(done.stdout)
    return found


def _imported() -> set[str]:
    """Return the modules of a process that has unpickled a stream, a batch and a task."""
    stream, batch = ReadOptions.for_stream(READING), ReadOptions.for_batch(READING)
    schema = arrow_schema(["body"])
    task = TaskPartition(ReadTask((QueueRange(QueueKey("T", "a", 0), 0, 5),)))
    pickled = [
        pickle.dumps(each) for each in (StreamReader(stream, schema), BatchReader(batch, schema), task)
    ]
    done = subprocess.run(
        [sys.executable, "-c", _UNPICKLE], input=pickle.dumps(pickled), capture_output=True, check=True
    )
    return set(json.loads(done.stdout))


def test_worker_imports_what_tasks_need() -> None:
    imported = _imported()
    name = "pyspark_rocketmq"
    of_the_connector = {module for module in imported if module == name or module.startswith(f"{name}.")}
    assert {module.removeprefix(name).removeprefix(".") for module in of_the_connector} == _MODULES
    unwanted = tuple(f"rmq_client.{part}" for part in _NOT_OF_THE_SDK)
    assert [module for module in imported if module.startswith((*unwanted, "pydantic"))] == []
    assert len(_of_this_project(imported)) <= _MOST_OF_A_TASK


def test_process_of_a_stream_imports_what_planning_needs() -> None:
    imported = _imported_by(_START_STREAM, READING)
    assert [module for module in imported if module.startswith(_NOT_OF_THE_DRIVER)] == []
    assert len(_of_this_project(imported)) <= _MOST_OF_A_STREAM


def test_processes_of_a_write_on_the_driver_need_few_modules() -> None:
    imported = _imported_by(_START_WRITE, WRITING)
    assert "pyspark_rocketmq.sink.writers" in imported
    assert [module for module in imported if module.startswith(_NOT_OF_THE_DRIVER)] == []


def test_modules_of_tasks_do_without_pydantic() -> None:
    """The SDK uses pydantic for bodies of responses; the connector's half on executors does not."""
    root = Path(pyspark_rocketmq.__file__).parent
    for module in _MODULES:
        path = root.joinpath(*module.split(".")) if module else root
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        assert "pydantic" not in file.read_text(), module
