"""Subscribers: handlers called by a push consumer, or messages taken one by one from a pull consumer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
from faststream.exceptions import IncorrectState

from rmq_client import (
    ClientSettings,
    ConsumeContext,
    ConsumeResult,
    ConsumerTiming,
    MessageExt,
    OrderlyContext,
    PullConsumer,
    PushConsumer,
)

from .message import RawMessage, RocketMessage, messages_of
from .options import ConsumerOptions
from .parser import RocketBatchParser, RocketParser, is_request
from .replies import RequestReplier, TopicReplier
from .settlement import CURRENT, Settlement
from .subscriber_config import (
    RocketSubscriberConfig,
    RocketSubscriberSpecification,
    RocketSubscriberSpecificationConfig,
)

if TYPE_CHECKING:
    from faststream._internal.endpoint.publisher import PublisherProto
    from faststream.message import StreamMessage

    from .broker_config import RocketBrokerConfig


# Any: messages of `get_one` are single, handlers may get batches, and the base class has one type for both.
class RocketSubscriber(SubscriberUsecase[Any]):
    """One consumer of a group.

    With handlers it is a push consumer, whose listener reports what the handler decided. Without handlers it
    is a pull consumer for `get_one` and `async for`, which commits the messages that it has returned.
    """

    _outer_config: RocketBrokerConfig

    def __init__(
        self,
        config: RocketSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[RawMessage],
    ) -> None:
        if config.batch:
            batch_parser = RocketBatchParser()
            config.parser, config.decoder = batch_parser.parse_batch, batch_parser.decode_batch
        else:
            parser = RocketParser()
            config.parser, config.decoder = parser.parse_message, parser.decode_message
        super().__init__(config, specification, calls)
        self._config = config
        self._push: PushConsumer | None = None
        self._pull: PullConsumer | None = None
        # The stop that a handler has ordered: it cannot wait for itself.
        self._stopping: asyncio.Task[None] | None = None

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._config.group

    @property
    def orderly(self) -> bool:
        """Whether the messages of a queue are handled one after the other."""
        return self._config.orderly

    @property
    def batch(self) -> bool:
        """Whether handlers get several messages at once."""
        return self._config.batch

    @property
    def expressions(self) -> dict[str, str]:
        """Tags or an Sql expression by topic, with the prefix of the routers."""
        prefix = self._outer_config.prefix
        return {f"{prefix}{topic}": tags for topic, tags in self._config.expressions.items()}

    async def start(self) -> None:
        """Join the group and consume. Raises ClientError."""
        await super().start()
        # Messages may arrive before the consumer's start returns.
        self._post_start()
        try:
            if self.calls:
                await self._start_push()
            else:
                await self._start_pull()
        except BaseException:
            self.running = False
            raise

    async def stop(self) -> None:
        """Stop pulling, wait for handlers up to the broker's `graceful_timeout`, commit, leave the group.

        Called by a handler of the subscriber itself, it returns at once, and the stop goes on.
        """
        settlement = CURRENT.get()
        if settlement is not None and settlement.task is asyncio.current_task():
            if self._stopping is None:
                self._stopping = asyncio.create_task(self._stop(), name=f"stop-{self.group}")
            return
        if self._stopping is not None:
            await self._stopping
        await self._stop()

    async def _stop(self) -> None:
        push, self._push = self._push, None
        pull, self._pull = self._pull, None
        if push is not None:
            # Before `running` is cleared: a message that is not handled any more would be redelivered later.
            await push.stop()
        if pull is not None:
            await pull.stop()
        await super().stop()

    def check(self) -> None:
        """Raise InvalidArgumentError for arguments that the SDK's consumer refuses, and TypeError for an
        unknown option.
        """
        self._new_push(None, ClientSettings())

    async def _start_push(self) -> None:
        outer = self._outer_config
        self._push = self._new_push(outer.name_servers, outer.settings)
        await self._push.start()

    def _new_push(self, name_servers: str | Sequence[str] | None, settings: ClientSettings) -> PushConsumer:
        config = self._config
        options: ConsumerOptions = {
            "timing": ConsumerTiming(stop_grace_seconds=self._outer_config.graceful_timeout or 0),
            **config.options,
        }
        return PushConsumer(
            name_servers,
            group=config.group,
            topics=self.expressions,
            listener=self._listen,
            orderly=config.orderly,
            broadcasting=config.broadcasting,
            consume_from=config.consume_from,
            workers=config.max_workers,
            max_messages=config.max_messages,
            max_reconsume_times=config.max_reconsume_times,
            suspend_seconds=config.suspend_seconds,
            settings=settings,
            **options,
        )

    async def _start_pull(self) -> None:
        self._pull = PullConsumer(
            self._outer_config.name_servers,
            group=self._config.group,
            topics=self.expressions,
            consume_from=self._config.consume_from,
            auto_commit=True,
            settings=self._outer_config.settings,
        )
        await self._pull.start()

    async def _listen(
        self, messages: list[MessageExt], context: ConsumeContext | OrderlyContext
    ) -> ConsumeResult:
        """Run the handlers for one call of the push consumer's listener."""
        settlement = Settlement(self.orderly)
        token = CURRENT.set(settlement)
        try:
            await self.consume(tuple(messages) if self.batch else messages[0])
        finally:
            CURRENT.reset(token)
        return settlement.apply(context)

    # --- without handlers ---

    async def get_one(self, *, timeout: float = 5.0) -> RocketMessage | None:
        """Return the next message, or None if none arrives within `timeout` seconds. Raises ClientError."""
        messages = await self._running_pull().poll(max_messages=1, timeout_seconds=timeout)
        return await self._parsed(messages[0]) if messages else None

    async def __aiter__(self) -> AsyncIterator[RocketMessage]:
        """Yield messages until the subscriber is stopped. Raises ClientError."""
        async for raw in self._running_pull():
            yield await self._parsed(raw)

    def _running_pull(self) -> PullConsumer:
        if self._pull is None:
            raise IncorrectState(
                "the subscriber has handlers, which get its messages: use one without"
                if self.calls
                else "the subscriber is not running: call `await subscriber.start()` first"
            )
        return self._pull

    async def _parsed(self, raw: MessageExt) -> RocketMessage:
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        message = await process_msg(
            msg=raw,
            middlewares=(middleware(raw, context=context) for middleware in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        return cast("RocketMessage", message)

    # --- FastStream's questions ---

    def _make_response_publisher(self, message: StreamMessage[RawMessage]) -> Sequence[PublisherProto]:
        producer, raw = self._outer_config.producer, message.raw_message
        if isinstance(raw, MessageExt) and is_request(raw):
            return (RequestReplier(producer, raw),)
        return (TopicReplier(producer, message.reply_to),)

    def get_log_context(self, message: StreamMessage[RawMessage] | None) -> dict[str, str]:
        """Return the columns of a log line."""
        topic = ",".join(self.expressions)
        if message is not None:
            topic = messages_of(message.raw_message)[0].topic
        return {"topic": topic, "group": self.group, "message_id": getattr(message, "message_id", "")}


def create_subscriber(
    config: RocketSubscriberConfig,
    *,
    title: str | None,
    description: str | None,
    include_in_schema: bool,
) -> RocketSubscriber:
    """Return a subscriber and what the AsyncAPI document says of it. Raises as `RocketSubscriber.check`."""
    calls = CallsCollection[RawMessage]()
    specification = RocketSubscriberSpecification(
        config._outer_config,
        RocketSubscriberSpecificationConfig(
            topics=tuple(config.expressions),
            title_=title,
            description_=description,
            include_in_schema=include_in_schema,
        ),
        calls,
    )
    subscriber = RocketSubscriber(config, specification, calls)
    subscriber.check()
    return subscriber
