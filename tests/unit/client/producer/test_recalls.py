"""Taking messages back: what is refused before anybody is asked, and by whom the rest is."""

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
        # The brokers of these tests cannot do it.
        (_handle(), Rejected, "recall of a message to T"),
    ],
    ids=["nonsense", "empty", "topic", "broker", "refused"],
)
async def test_what_is_refused(handle: str, error: type[Exception], problem: str) -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        with pytest.raises(error, match=problem):
            await producer.recall(handle)


async def test_a_producer_that_does_not_run() -> None:
    with pytest.raises(NotRunning):
        await Producer("127.0.0.1:1", group="g").recall(_handle())
