"""Descriptors in reserve for files."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rmq_remoting.daemon.descriptor_reserve import DescriptorReserve, open_file


@contextmanager
def all_descriptors_used() -> Iterator[list[int]]:
    """Leave this process without a free descriptor; the list has those that may be closed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        with suppress(OSError):
            while True:
                used.append(os.open(os.devnull, os.O_RDONLY))
        yield used
    finally:
        for descriptor in used:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_files_open_with_descriptors_of_the_reserve_until_none_is_left() -> None:
    reserve = DescriptorReserve()
    reserve.fill(2)
    opened: list[int] = []

    def opens() -> None:
        opened.append(os.open(os.devnull, os.O_RDONLY))

    with all_descriptors_used() as used:
        for left in (1, 0):
            reserve.call(opens)
            assert reserve.held == left
        with pytest.raises(OSError, match="Too many open files"):
            reserve.call(opens)
        os.close(used.pop())
        reserve.call(opens)
        assert reserve.held == 0  # the last ones that become free are for others
    reserve.call(opens)
    assert reserve.held == 2 and len(opened) == 4
    reserve.fill(0)
    for descriptor in opened:
        os.close(descriptor)


def test_other_errors_give_nothing_up(tmp_path: Path) -> None:
    reserve = DescriptorReserve()
    reserve.fill(1)

    def fails() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left"):
        reserve.call(fails)
    assert reserve.held == 1
    reserve.fill(0)
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "missing", os.O_RDONLY)


def test_a_process_without_a_reserve_gets_the_error() -> None:
    with all_descriptors_used(), pytest.raises(OSError, match="Too many open files"):
        open_file(os.devnull, os.O_RDONLY)
