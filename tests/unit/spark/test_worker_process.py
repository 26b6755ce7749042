"""Objects that exist when a worker gets its first task are excluded from garbage collection."""

from __future__ import annotations

import gc

from pyspark_rocketmq.worker_process import prepare_worker


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
        gc.unfreeze()
        prepare_worker.cache_clear()
