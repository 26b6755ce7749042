"""Flushing the files of all queues."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rmq_broker.store.queues.queue_resources import QueueResources


class _Extension:
    """Extension files whose first flush finds no descriptor."""

    def __init__(self) -> None:
        self.flushes = 0

    def flush(self) -> None:
        self.flushes += 1
        if self.flushes == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_extension_files_that_could_not_be_flushed_are_flushed_next_time(tmp_path: Path) -> None:
    resources, extension = QueueResources(), _Extension()
    resources.ext_to_flush[extension] = None
    with pytest.raises(OSError, match="Too many open files"):
        resources.flush_files(tmp_path)
    resources.flush_files(tmp_path)
    assert extension.flushes == 2
    resources.flush_files(tmp_path)
    assert extension.flushes == 2
