"""All consume queues of a store: `consumequeue/TOPIC/QUEUE ID/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .consume_queue import ConsumeQueue


class ConsumeQueues:
    """All queues, by topic and queue id."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._by_topic: dict[str, dict[int, ConsumeQueue]] = {}

    def load(self) -> None:
        """Open every queue that has a folder. Raises StoreDamaged, OSError."""
        if not self._folder.is_dir():
            return
        for topic_folder in sorted(self._folder.iterdir()):
            if not topic_folder.is_dir():
                continue
            for queue_folder in topic_folder.iterdir():
                name = queue_folder.name
                if name.isascii() and name.isdecimal():
                    self.get_or_create(topic_folder.name, int(name)).load()

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if it has ever been written to."""
        queues = self._by_topic.get(topic)
        return None if queues is None else queues.get(queue_id)

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; its files are made when the first message comes."""
        queues = self._by_topic.setdefault(topic, {})
        queue = queues.get(queue_id)
        if queue is None:
            folder = self._folder / topic / str(queue_id)
            queue = queues[queue_id] = ConsumeQueue(folder, topic, queue_id, self._file_bytes)
        return queue

    def of_topic(self, topic: str) -> dict[int, ConsumeQueue]:
        """The queues of a topic by queue id."""
        return self._by_topic.get(topic, {})

    def topics(self) -> list[str]:
        """Every topic with a queue."""
        return list(self._by_topic)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        for queues in list(self._by_topic.values()):
            yield from list(queues.values())

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a topic and their files; the messages stay in the log until it is cleaned."""
        for queue in self._by_topic.pop(topic, {}).values():
            queue.delete()
        folder = self._folder / topic
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def close(self) -> None:
        """Let all files go."""
        for queue in self:
            queue.close()
        self._by_topic.clear()
