"""The messages and consumers of a broker as one test sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from rmq_broker.broker import Broker
from rmq_client import Message, MessageExt
from rmq_remoting.message_properties import PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX

from .consumption import remaining, waiting_for_retry
from .expectations import Deadline, ExpectationFailed, TopicReader, check_wait, counted
from .harness import Harness
from .messages import application_topics, ends_of, messages_of, queues_of, store_message

_DEAD_LETTER_PREFIX: Final = "%DLQ%"
_POLL_SECONDS: Final = 0.005
_KILLED: Final = "  the broker does not run: the test has killed it"


class BrokerView:
    """One test's view. Its coroutines belong to the loop of the harness."""

    def __init__(self, harness: Harness, reader: TopicReader) -> None:
        self.harness = harness
        self._reader = reader
        # Messages published so far, by topic: the queues take turns.
        self._published: dict[str, int] = {}

    @classmethod
    async def of(cls, harness: Harness) -> BrokerView:
        """Return a view to which everything that is stored from now on is new."""
        return cls(
            harness,
            TopicReader(await harness.call(lambda broker: ends_of(broker, application_topics(broker)))),
        )

    # --- messages ---

    async def publish(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
    ) -> MessageExt:
        """Store a message as if a producer had sent it, past network and faults; return it.

        `topic` may also be a whole message, with a delay, for example. A text is encoded as UTF-8. A topic
        that does not exist is created. Without `queue_id` the queues take turns.
        """
        message = topic if isinstance(topic, Message) else _message(topic, body, tags, keys, properties)
        name = message.topic
        if not message.body:
            raise ValueError(f"a message to {name!r} has an empty body: brokers refuse that")
        queues = await self.harness.call(lambda broker: queues_of(broker, name))
        if not queues:
            await self.harness.create_topic(name)
            queues = await self.harness.call(lambda broker: queues_of(broker, name))
        if queue_id is None:
            chosen = self._published.get(name, 0) % queues
            self._published[name] = chosen + 1
        elif not 0 <= queue_id < queues:
            raise ValueError(f"queue_id={queue_id}: topic {name!r} has the queues 0 to {queues - 1}")
        else:
            chosen = queue_id
        return await self.harness.call(lambda broker: self._store(broker, message, chosen))

    async def messages(self, topic: str) -> list[MessageExt]:
        """Return all messages of a topic, in the order in which they were stored; none for an unknown one."""
        return await self.harness.call(lambda broker: messages_of(broker, topic, {}))

    async def dead_letters(self, group: str) -> list[MessageExt]:
        """Return all dead letters of a consumer group."""
        return await self.messages(f"{_DEAD_LETTER_PREFIX}{group}")

    # --- expectations ---

    async def expect(self, topic: str, count: int = 1, timeout_seconds: float = 5.0) -> list[MessageExt]:
        """Wait for the next `count` messages of a topic, and return them.

        Each message is returned once: another call waits for those that follow. Raises ExpectationFailed
        with the messages that came instead.
        """
        check_wait(count, timeout_seconds)
        deadline = Deadline(timeout_seconds)
        while True:
            found = await self._new_messages(topic)
            if len(found) >= count:
                self._reader.take(found[:count])
                return found[:count]
            if deadline.has_passed:
                raise ExpectationFailed(
                    f"expected {counted(count)} in topic {topic!r} within {timeout_seconds:g} s, "
                    f"got {len(found)}\n{await self._report(topic)}"
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def expect_dead_letters(
        self, group: str, count: int = 1, timeout_seconds: float = 5.0
    ) -> list[MessageExt]:
        """Wait for the next dead letters of a consumer group, as `expect` does."""
        return await self.expect(f"{_DEAD_LETTER_PREFIX}{group}", count, timeout_seconds)

    async def expect_redelivery(self, group: str, count: int = 1, timeout_seconds: float = 5.0) -> None:
        """Wait until `count` rejected messages of a group wait for their redelivery, which `advance` brings.

        Popped messages do not count: they become visible again where they are. Raises ExpectationFailed.
        """
        check_wait(count, timeout_seconds)
        deadline = Deadline(timeout_seconds)
        while (waiting := await self._waiting_for_retry(group)) < count:
            if deadline.has_passed:
                raise ExpectationFailed(
                    f"expected {counted(count)} of group {group!r} to wait for redelivery within "
                    f"{timeout_seconds:g} s, got {waiting}"
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def expect_nothing(self, topic: str, within_seconds: float = 0.2) -> None:
        """Check that a topic gets no further message for a while. Raises ExpectationFailed."""
        check_wait(1, within_seconds)
        deadline = Deadline(within_seconds)
        while True:
            found = await self._new_messages(topic)
            if found:
                raise ExpectationFailed(
                    f"expected no further message in topic {topic!r}, got {len(found)}\n"
                    f"{await self._report(topic)}"
                )
            if deadline.has_passed:
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def consumed(self, group: str, topic: str | None = None, timeout_seconds: float = 5.0) -> None:
        """Wait until a group has consumed all messages of a topic, or of all its topics.

        A message that waits for redelivery is not consumed, and a dead letter is. Messages that the filter of
        the group excludes do not count. Raises ExpectationFailed with the messages that are left.
        """
        check_wait(1, timeout_seconds)
        deadline = Deadline(timeout_seconds)
        while True:
            report = _KILLED
            if self.harness.is_running:
                life = self.harness.life
                left = await life.run(remaining(life.broker, group, topic))
                if left.is_nothing:
                    return
                report = left.report(group)
            if deadline.has_passed:
                raise ExpectationFailed(
                    f"group {group!r} has not consumed everything within {timeout_seconds:g} s\n{report}"
                )
            await asyncio.sleep(_POLL_SECONDS)

    # --- within ---

    async def _waiting_for_retry(self, group: str) -> int:
        if not self.harness.is_running:
            return 0
        return await self.harness.call(lambda broker: waiting_for_retry(broker, group))

    async def _new_messages(self, topic: str) -> list[MessageExt]:
        if not self.harness.is_running:
            return []
        return await self.harness.call(lambda broker: self._reader.new_messages(broker, topic))

    async def _report(self, topic: str) -> str:
        if not self.harness.is_running:
            return _KILLED
        now_ms = self.harness.clock.now_ms()
        return await self.harness.call(lambda broker: self._reader.report(broker, topic, now_ms))

    def _store(self, broker: Broker, message: Message, queue_id: int) -> MessageExt:
        harness = self.harness
        msg_id, offset = store_message(broker, message, queue_id, harness.unique_keys, harness.clock.now_ms())
        stored = MessageExt(message.topic, message.body, message.flag)
        stored.properties = {**message.properties, PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: msg_id}
        stored.queue_id, stored.queue_offset = queue_id, offset
        return stored


def _message(
    topic: str,
    body: bytes | str,
    tags: str | None,
    keys: str | Iterable[str],
    properties: Mapping[str, str] | None,
) -> Message:
    data = body.encode() if isinstance(body, str) else body
    return Message(topic, data, tags=tags, keys=keys, properties=properties)
