"""Recalls: refusals before and after a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_client import NoQueue, NotRunning, PermissionDenied, Producer, TopicNotFound, UsageError
from rmq_remoting.recall_handle import RecallHandle
from tests.support.clusters import running_cluster
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture


def _handle(topic: str = "T", broker_name: str = "broker-a") -> str:
    return RecallHandle(topic, broker_name, 1_700_000_000_001, "K").encode()


@pytest.mark.parametrize(
    ("handle", "error", "problem"),
    [
        ("nonsense", UsageError, "is invalid"),
        ("", UsageError, "handle='': must not be empty"),
        (_handle("Nowhere"), TopicNotFound, "Nowhere"),
        (_handle(broker_name="broker-b"), NoQueue, "broker broker-b, which has the message to T"),
        # Brokers allow no recalls by default.
        (_handle(), PermissionDenied, "recall of a message to T.*recallMessageEnable"),
    ],
    ids=["nonsense", "empty", "topic", "broker", "refused"],
)
async def test_invalid_recalls_are_refused(
    handle: str, error: type[Exception], problem: str, tmp_path: Path
) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        with pytest.raises(error, match=problem):
            await producer.recall(handle)


async def test_a_producer_that_is_not_started_recalls_nothing() -> None:
    with pytest.raises(NotRunning):
        await Producer("127.0.0.1:1", group="g").recall(_handle())
