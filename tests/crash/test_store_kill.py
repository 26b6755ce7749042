"""A process that stores messages is killed at any moment: acknowledged messages are at their places."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_broker.store.recovery.stop_marker import StopKind
from tests.support.stores import bodies, check_agreement, opened

_PROJECT = Path(__file__).resolve().parents[2]
_ROUNDS = int(os.environ.get("RMQ_CRASH_ROUNDS", "5"))
_MOST_LINES = 600

Queues = dict[tuple[str, int], dict[int, int]]


def write_and_be_killed(root: Path, seed: int, lines: int) -> Iterator[str]:
    """Run a writer, kill it after `lines` lines of its output, and yield all lines."""
    command = [sys.executable, "-m", "tests.crash.store_writer", str(root), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_PROJECT, text=True) as writer:
        assert writer.stdout is not None
        for number, line in enumerate(writer.stdout):
            if number == lines:
                writer.kill()
            yield line


def note(acknowledged: Queues, line: str) -> None:
    topic, queue_id, offset, first, count = line.split()
    queue = acknowledged.setdefault((topic, int(queue_id)), {})
    for index in range(int(count)):
        assert int(offset) + index not in queue, f"offset used twice: {line}"
        queue[int(offset) + index] = int(first) + index


def check(root: Path, acknowledged: Queues) -> int:
    """Open the store, and check for all acknowledged messages; return the number of messages."""
    store = opened(root)
    assert store.recovery is not None and store.recovery.stop is StopKind.PROCESS_KILLED
    extra = 0
    for (topic, queue_id), queue in acknowledged.items():
        found = [int(body) for body in bodies(store, topic, queue_id)]
        assert len(found) == len(set(found))
        for offset, number in queue.items():
            assert found[offset] == number
        extra += len(found) - len(queue)
        # Messages that were stored and not acknowledged at the kill must stay from now on.
        queue.update(enumerate(found))
    store.close()
    assert extra < 40, "more than one unacknowledged message or batch"
    messages = check_agreement(root)
    assert messages == sum(map(len, acknowledged.values()))
    return messages


@pytest.mark.timeout(60 + 10 * _ROUNDS)
def test_kills_at_any_moment_lose_no_acknowledged_message(tmp_path: Path) -> None:
    chance = random.Random()
    acknowledged: Queues = {}
    messages = 0
    for seed in range(1, _ROUNDS + 1):
        # In some rounds the kill hits the opening of the store.
        lines = 0 if seed % 4 == 0 else chance.randrange(1, _MOST_LINES)
        for line in write_and_be_killed(tmp_path, seed, lines):
            if line != "open\n":
                note(acknowledged, line)
        if acknowledged:
            messages = check(tmp_path, acknowledged)
    assert messages > 200
