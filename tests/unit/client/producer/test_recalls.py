"""Recalls: refusals before and after a request."""

from __future__ import annotations

import pytest

from rmq_client import NoQueue, NotRunning, Producer, Rejected, TopicNotFound, UsageError
from rmq_remoting.recall_handle import RecallHandle
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture


def _handle(topic: str = "T", broker_name: str = "broker-a") -> str:
    return RecallHandle(topic, broker_name, 1_700_000_000_001, "K").encode()


@pytest.mark.parametrize(
    ("handle", "error", "problem"),
    [
        ("nonsense", UsageError, "is invalid"),
        ("", UsageError, "is invalid"),
        (_handle("Nowhere"), TopicNotFound, "Nowhere"),
        (_handle(broker_name="broker-b"), NoQueue, "broker broker-b, which has the message to T"),
        # The brokers of these tests do not support it.
        (_handle(), Rejected, "recall of a message to T"),
    ],
    ids=["nonsense", "empty", "topic", "broker", "refused"],
)
async def test_invalid_recalls_are_refused(handle: str, error: type[Exception], problem: str) -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        with pytest.raises(error, match=problem):
            await producer.recall(handle)


async def test_an_encoded_producer_that_is_not_started_raises() -> None:
    with pytest.raises(NotRunning):
        await Producer("127.0.0.1:1", group="g").recall(_handle())
