"""Objects that exist when a worker gets its first task are excluded from garbage collection."""

from __future__ import annotations

import gc
import weakref

import pytest

from pyspark_rocketmq.columns import arrow_schema
from pyspark_rocketmq.driver.task_settings import task_settings
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.tasks.connection_pool import connection_pool
from pyspark_rocketmq.tasks.ranges import ReadTask
from pyspark_rocketmq.tasks.task_reading import read_task
from pyspark_rocketmq.worker_process import prepare_worker
from tests.unit.spark.options.samples import READING


def test_only_the_first_task_of_a_process_freezes_objects() -> None:
    prepare_worker.cache_clear()
    gc.unfreeze()
    try:
        prepare_worker()
        frozen = gc.get_freeze_count()
        assert frozen > 1000
        kept = [[number] for number in range(5000)]
        prepare_worker()
        assert gc.get_freeze_count() <= frozen
        assert len(kept) == 5000
    finally:
        gc.freeze()
        prepare_worker.cache_clear()


def test_garbage_of_other_code_is_not_kept() -> None:
    class Node:
        def __init__(self) -> None:
            self.itself = self

    prepare_worker.cache_clear()
    gc.unfreeze()
    node = weakref.ref(Node())
    assert node() is not None
    try:
        prepare_worker()
        assert node() is None
    finally:
        gc.freeze()
        prepare_worker.cache_clear()


@pytest.mark.parametrize("tunes", [True, False])
def test_option_leaves_the_worker_as_it_is(tunes: bool) -> None:
    options = ReadOptions.for_batch({**READING, "tuneWorkers": str(tunes)})
    settings = task_settings(options, arrow_schema(["body"]))
    prepare_worker.cache_clear()
    gc.unfreeze()
    try:
        assert list(read_task(ReadTask(()), settings)) == []
        assert (gc.get_freeze_count() > 0) is tunes
    finally:
        gc.freeze()
        prepare_worker.cache_clear()
        connection_pool().close()
