"""TestRocketBroker: a broker in memory, for tests of handlers without a running RocketMQ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final, overload
from unittest.mock import MagicMock
from uuid import uuid4

import anyio
from faststream._internal.parser import DefaultCodec
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from rmq_client import Message, MessageExt, MessageQueue, SendResult, SendStatus, Sql

from .broker import RocketBroker
from .encoding import encode_batch, encode_message
from .producer import RocketProducer
from .response import RocketPublishCommand
from .settlement import CURRENT, Settlement
from .subscriber import RocketSubscriber

if TYPE_CHECKING:
    from faststream.response.response import Response

    from .publisher import RocketPublisher

_BROKER_NAME: Final = "in-memory"
_numbers: Final = count(1)


class TestRocketBroker(TestBroker[RocketBroker, EnterType], broker=RocketBroker):
    """Calls the handlers of published messages at once, in the task that publishes.

    Every group gets a message once, and tags are compared. Delays pass at once, an `Sql` filter admits every
    message, and nothing is redelivered: an exception of a handler is raised by `publish`. `with_real=True`
    uses the cluster that the broker is configured for, and adds mocks to handlers and publishers.
    """

    @overload
    def __init__(
        self: TestRocketBroker[RocketBroker],
        broker: RocketBroker,
        /,
        *,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: TestRocketBroker[tuple[RocketBroker, ...]],
        *brokers: RocketBroker,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...

    def __init__(
        self, *brokers: RocketBroker, with_real: bool = False, connect_only: bool | None = None
    ) -> None:
        super().__init__(*brokers, with_real=with_real, connect_only=connect_only)

    def create_publisher_fake_subscriber(
        self, broker: RocketBroker, publisher: RocketPublisher
    ) -> tuple[RocketSubscriber, bool]:
        """Return the subscriber of a publisher's messages, and whether the application has declared it."""
        for subscriber in _subscribers(self.brokers):
            expression = subscriber.expressions.get(publisher.topic)
            if expression is not None and _admits(expression, publisher.options.get("tag")):
                return subscriber, True
        # With the real cluster, a new group that begins with the first message misses none.
        fake = broker.subscriber(
            publisher.topic, group=f"fake-{uuid4()}", consume_from="first", persistent=False
        )
        return fake, False

    @contextmanager
    def _patch_producer(self, broker: RocketBroker) -> Iterator[None]:
        with change_producer(broker.config.broker_config, InMemoryProducer(broker, self.brokers)):
            yield

    async def _fake_connect(self, broker: RocketBroker, *args: Any, **kwargs: Any) -> Any:
        return MagicMock()


class InMemoryProducer(RocketProducer):
    """Gives published messages to the subscribers of the brokers under test."""

    def __init__(self, broker: RocketBroker, brokers: Sequence[RocketBroker]) -> None:
        super().__init__(broker.config.broker_parser, broker.config.broker_decoder)
        self.codec = broker.config.broker_codec or DefaultCodec()
        self.serializer = broker.config.fd_config._serializer
        self._brokers = brokers

    async def publish(self, cmd: RocketPublishCommand) -> SendResult:
        """Call the handlers of a message. Raises what they raise."""
        message = _received(await encode_message(cmd, self.codec, self.serializer))
        for subscriber in self._receivers(message):
            await _handle(subscriber, [message])
        return _result(message)

    async def publish_batch(self, cmd: RocketPublishCommand) -> list[SendResult]:
        """Call the handlers of messages: once for all of them, or for each one after the other."""
        messages = [_received(one) for one in await encode_batch(cmd, self.codec, self.serializer)]
        for subscriber in self._receivers(messages[0]) if messages else ():
            if subscriber.batch:
                await _handle(subscriber, messages)
            else:
                for message in messages:
                    await _handle(subscriber, [message])
        return [_result(message) for message in messages]

    async def request(self, cmd: RocketPublishCommand) -> MessageExt:
        """Return the response of the first handler. Raises SubscriberNotFound if there is none."""
        message = _received(await encode_message(cmd, self.codec, self.serializer))
        for subscriber in self._receivers(message):
            with anyio.fail_after(cmd.timeout):
                response = await _handle(subscriber, [message])
            answer = RocketPublishCommand.from_cmd(response.as_publish_command())
            answer.destination = cmd.destination
            return _received(await encode_message(answer, self.codec, self.serializer))
        raise SubscriberNotFound(f"no subscriber of topic {cmd.destination} can answer the request")

    def _receivers(self, message: MessageExt) -> Iterator[RocketSubscriber]:
        """Yield one subscriber of each group."""
        groups = set()
        for subscriber in _subscribers(self._brokers):
            expression = subscriber.expressions.get(message.topic)
            if expression is None or subscriber.group in groups or not _admits(expression, message.tags):
                continue
            groups.add(subscriber.group)
            yield subscriber


def _subscribers(brokers: Sequence[RocketBroker]) -> Iterator[RocketSubscriber]:
    for broker in brokers:
        for subscriber in broker.subscribers:
            if isinstance(subscriber, RocketSubscriber):
                yield subscriber


async def _handle(subscriber: RocketSubscriber, messages: Sequence[MessageExt]) -> Response:
    token = CURRENT.set(Settlement(subscriber.orderly))
    try:
        return await subscriber.process_message(tuple(messages) if subscriber.batch else messages[0])
    finally:
        CURRENT.reset(token)


def _admits(expression: str, tag: str | None) -> bool:
    if isinstance(expression, Sql) or expression == "*":
        return True
    return tag in [one.strip() for one in expression.split("||")]


def _received(message: Message) -> MessageExt:
    number = next(_numbers)
    received = MessageExt(
        message.topic,
        message.body,
        flag=message.flag,
        properties=dict(message.properties),
        queue_offset=number,
        broker_name=_BROKER_NAME,
    )
    received.unique_key = f"{_BROKER_NAME}-{number}"
    return received


def _result(message: MessageExt) -> SendResult:
    queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
    return SendResult(SendStatus.SEND_OK, message.msg_id, queue, message.queue_offset, message.offset_msg_id)
