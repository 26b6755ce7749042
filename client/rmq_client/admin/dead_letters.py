"""Dead letters: messages that a group refused too often, listed and sent again."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_properties import (
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_KEYS,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
)

from ..bodies.encoding import DEAD_LETTER_REASON
from ..errors import TopicNotFound, UsageError
from ..names import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from ..producer.producer import Producer
from ..results import SendResult
from .arguments import checked
from .groups import GroupAdmin
from .messages import MessageAdmin

_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
_KEPT: Final = (
    PROPERTY_TAGS,
    PROPERTY_KEYS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
)


class DeadLetterAdmin(MessageAdmin, GroupAdmin):
    """Dead letters."""

    _producer: Producer | None = None

    async def stop(self) -> None:
        """Release the connections."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()
        await super().stop()

    @checked
    async def dead_letter_counts(self) -> dict[str, int]:
        """Return the number of dead letters by group, of groups that have some. Raises ClientError."""
        counts: dict[str, int] = {}
        for topic in await self.topics():
            if topic.startswith(DEAD_LETTER_TOPIC_PREFIX):
                stats = await self.topic_stats(topic)
                count = sum(reach.max_offset - reach.min_offset for reach in stats.values())
                if count:
                    counts[topic.removeprefix(DEAD_LETTER_TOPIC_PREFIX)] = count
        return counts

    @checked
    async def dead_letters(
        self,
        group: str,
        *,
        begin: datetime | None = None,
        end: datetime | None = None,
        max_messages: int = 1000,
    ) -> list[MessageExt]:
        """Return the dead letters of a group that were stored between two times, the oldest first.

        Their topic is that of the group's dead letters; `origin_topic` tells where they came from. Of more
        than `max_messages` the oldest are returned. Raises GroupNotFound and other ClientErrors.
        """
        topic = DEAD_LETTER_TOPIC_PREFIX + group
        try:
            return await self.messages_between(topic, begin=begin, end=end, max_messages=max_messages)
        except TopicNotFound:
            await self._check_group(self._namespace.checked_group(group), await self._masters())
            return []  # brokers create the topic with the group's first dead letter

    @checked
    async def resend_dead_letter(self, message: MessageExt, *, to_topic: str | None = None) -> SendResult:
        """Send a dead letter again, to the consumers of its group alone or to a topic.

        Without `to_topic` it goes to the group's retry topic, and has all its redeliveries again. Consumers
        that pop, or that assign queues themselves, do not read that topic: name a topic for them, such as
        `origin_topic(message)`, whose other groups get the message, too. Body, tags, keys, id and properties
        of the user stay. The dead letter itself stays where it is. Raises ClientError.
        """
        group = message.topic.removeprefix(DEAD_LETTER_TOPIC_PREFIX)
        if group == message.topic:
            raise UsageError(f"message {message.msg_id} of topic {message.topic} is no dead letter")
        again = Message(to_topic or RETRY_TOPIC_PREFIX + group, message.body, flag=message.flag)
        again.properties.update(message.user_properties)
        again.properties.pop(DEAD_LETTER_REASON, None)
        kept: dict[str, str] = {
            name: message.properties[name] for name in _KEPT if name in message.properties
        }
        again.properties.update(kept)
        if to_topic is None:
            again.properties[PROPERTY_RETRY_TOPIC] = origin_topic(message)
        return await (await self._started_producer()).send(again)

    async def _started_producer(self) -> Producer:
        self._running()
        async with self._starting:
            if self._producer is None:
                producer = Producer(self._namesrv, group=_PRODUCER_GROUP, settings=self._settings)
                await producer.start()
                self._producer = producer
            return self._producer


def origin_topic(message: MessageExt) -> str:
    """Return the topic from which a dead letter came; the full name, if there is a namespace."""
    properties = message.properties
    return properties.get(PROPERTY_DLQ_ORIGIN_TOPIC) or properties.get(PROPERTY_RETRY_TOPIC) or message.topic
