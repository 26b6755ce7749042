"""Topics that sends have just created."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from rmq_remoting.daemon.deferred_answers import answer_after

if TYPE_CHECKING:
    from rmq_remoting.answers import Result

# As long as for the announcement. A disk that stands still for longer must not hold all first sends.
_MOST_SECONDS: Final = 1.0


class SavedTopics(Protocol):
    """The topics with their files."""

    @property
    def are_saved(self) -> bool:
        """Whether all changes so far are on disk."""

    async def save(self) -> None:
        """Wait until all changes so far are on disk. Raises OSError."""


class AnnouncedTopics(Protocol):
    """The topics as the name servers know them."""

    @property
    def is_announced(self) -> bool:
        """Whether the name servers know the topics as they are now."""

    async def announced(self) -> bool:
        """Wait for that; return False if it takes too long."""


class CreatedTopics:
    """Lets sends to a new topic wait until the topic is on disk, and the name servers know it.

    Otherwise a crash could forget the topic of an acknowledged message. A client that has the answer can ask
    a name server for the topic's route. Apache's broker does the same (TopicConfigManager,
    createTopicInSendMessageMethod). Belongs to the loop's thread.
    """

    def __init__(self, saved: SavedTopics, announced: AnnouncedTopics) -> None:
        self._saved = saved
        self._announced = announced
        self.names: set[str] = set()  # topics that are not on disk yet

    def answer_first(self, topic: str, result: Result) -> Result:
        """Return the result of the send that created a topic, once the topic is on disk and announced."""
        if self._saved.are_saved and self._announced.is_announced:
            return result
        self.names.add(topic)
        return answer_after(partial(self._known, topic), result, "persist and announce a topic")

    def answer_next(self, topic: str, result: Result) -> Result:
        """Return the result of another send to a topic in `names`, once the topic is on disk."""
        return answer_after(partial(self._persisted, topic), result, "persist a topic")

    async def _known(self, topic: str) -> None:
        await asyncio.gather(self._persisted(topic), self._announced.announced())

    async def _persisted(self, topic: str) -> None:
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                await self._saved.save()
        except OSError:  # TimeoutError is one
            # The message is stored, so an error would make its producer send it again. The file of topics
            # logs and repeats the failed write.
            return
        finally:
            self.names.discard(topic)
