"""Parts of the tests of processors: a store without files, and responses that are awaited."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from rmq_remoting import answers
from rmq_remoting.answers import Result
from rmq_remoting.command import RemotingCommand


async def answer_of(result: Result) -> RemotingCommand:
    """The response that a processor gave or promised."""
    answer = await answers.answer_of(result)
    assert isinstance(answer, RemotingCommand)
    return answer


def ended() -> Future[None]:
    """The future of a work that has ended."""
    future: Future[None] = Future()
    future.set_result(None)
    return future


class FakeStore:
    """Queues by topic and id: each a list of store times; offsets count from `first_offsets`."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], list[int]] = {}
        self.first_offsets: dict[tuple[str, int], int] = {}
        self.recent_from_ms = 0
        self.deleted: list[str] = []

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.first_offsets.get((topic, queue_id), 0)

    def reported_min_offset(self, topic: str, queue_id: int) -> int:
        return self.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.min_offset(topic, queue_id) + len(self.queues.get((topic, queue_id), ()))

    def assigned_offset(self, topic: str, queue_id: int) -> int:
        return self.max_offset(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        times = self.queues.get((topic, queue_id), [])
        before = sum(time <= timestamp_ms if upper else time < timestamp_ms for time in times)
        return self.min_offset(topic, queue_id) + (max(0, before - 1) if upper else before)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        return self.store_time_at(topic, queue_id, self.min_offset(topic, queue_id))

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        times = self.queues.get((topic, queue_id), [])
        index = queue_offset - self.min_offset(topic, queue_id)
        return times[index] if 0 <= index < len(times) else -1

    def first_physical_offset(self, topic: str, queue_id: int) -> int | None:
        """Message 0 is in the log at the time of its storage."""
        time = self.store_time_at(topic, queue_id, 0)
        return time if time >= 0 else None

    def is_first_in_memory(self, topic: str, queue_id: int) -> bool:
        time = self.store_time_at(topic, queue_id, 0)
        return time >= 0 and time >= self.recent_from_ms

    def delete_topics(self, names: Sequence[str]) -> Future[None]:
        self.deleted += names
        return ended()

    def runtime_info(self) -> dict[str, str]:
        ratios = {"commitLogDiskRatio": "0.25", "consumeQueueDiskRatio": "0.25"}
        return {"commitLogMinOffset": "0", "commitLogMaxOffset": "4096", "flushBehindBytes": "2048", **ratios}

    def min_phy_offset(self) -> int:
        return 0

    def max_phy_offset(self) -> int:
        return 4096
