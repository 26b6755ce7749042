"""Declarations of subscribers and publishers, common to brokers and routers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream.middlewares import AckPolicy

from rmq_client import ConsumeFrom, Seconds, Topics

from .broker_config import RocketBrokerConfig
from .message import RawMessage
from .options import ConsumerOptions, MessageOptions
from .publisher import RocketPublisher, RocketPublisherConfig, create_publisher
from .subscriber import RocketSubscriber, create_subscriber
from .subscriber_config import RocketSubscriberConfig, expressions_by_topic

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable


class RocketRegistrator(Registrator[RawMessage, RocketBrokerConfig]):
    """The decorators `subscriber` and `publisher`."""

    # FastStream's base class registers a subscriber that it is given; each of its brokers overrides this with
    # the arguments of a declaration, against the rule of substitution.
    def subscriber(  # type: ignore[override]
        self,
        topics: Topics,
        *,
        group: str,
        tags: str = "*",
        batch: bool = False,
        max_messages: int | None = None,
        max_workers: int = 20,
        orderly: bool = False,
        broadcasting: bool = False,
        consume_from: ConsumeFrom = "last",
        max_reconsume_times: int | None = None,
        suspend_seconds: Seconds = 1.0,
        consumer_options: ConsumerOptions | None = None,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> RocketSubscriber:
        """Declare a consumer of a group.

        Raises SetupError for arguments that exclude each other, and InvalidArgumentError of the SDK.

        `topics`: one name, several names, or a mapping of names to filters. `tags`: filter of topics that
        are given by name, tags such as `paid || sent` or an `Sql` expression. A group has one set of topics
        and filters, so subscribers of one application need different groups.

        `batch`: handlers get a list of at most `max_messages` (32) messages of one queue. `max_workers`: the
        most calls at a time. `orderly`: the messages of a queue are handled one after the other.
        `broadcasting`: every member of the group gets every message. `consume_from` counts for queues that
        the group has never consumed: "first", "last" or a time. `max_reconsume_times`: attempts before a
        message becomes a dead letter; None: as the group is configured. `suspend_seconds`: pause before an
        orderly subscriber repeats a message. `consumer_options`: other arguments of the SDK's PushConsumer.

        `ack_policy`: what becomes of a message whose handler fails; by default it is redelivered later.
        """
        if max_messages is None:
            max_messages = 32 if batch else 1
        config = RocketSubscriberConfig(
            _outer_config=cast("RocketBrokerConfig", self.config),
            expressions=expressions_by_topic(topics, tags),
            group=group,
            batch=batch,
            max_messages=max_messages,
            max_workers=max_workers,
            orderly=orderly,
            broadcasting=broadcasting,
            consume_from=consume_from,
            max_reconsume_times=max_reconsume_times,
            suspend_seconds=suspend_seconds,
            options=consumer_options or {},
            no_reply=no_reply,
            _ack_policy=ack_policy,
        )
        subscriber = create_subscriber(
            config, title=title, description=description, include_in_schema=include_in_schema
        )
        super().subscriber(subscriber, persistent=persistent)
        return subscriber.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )

    # As with `subscriber`.
    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        batch: bool = False,
        reply_to: str = "",
        headers: dict[str, Any] | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
        **options: Unpack[MessageOptions],
    ) -> RocketPublisher:
        """Declare a publisher to a topic. Raises InvalidPropertyError for an option that no message can have.

        `batch`: a list that a handler returns is published as several messages. `headers` and the options of
        MessageOptions count for each message, unless the message has its own. `reply_to`: the topic that
        responses are published to. `schema`: type of the messages for the AsyncAPI document.
        """
        config = RocketPublisherConfig(
            _outer_config=cast("RocketBrokerConfig", self.config),
            topic=topic,
            batch=batch,
            reply_to=reply_to,
            headers=headers or {},
            options=options,
        )
        publisher = create_publisher(
            config,
            title=title,
            description=description,
            schema=schema,
            include_in_schema=include_in_schema,
        )
        super().publisher(publisher, persistent=persistent)
        return publisher

    def include_router(
        self,
        router: Registrator[RawMessage, Any],
        *,
        prefix: str = "",
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        include_in_schema: bool | None = None,
    ) -> None:
        """Include a router; `prefix` comes before the names of its topics. Raises TypeError."""
        if not isinstance(router, RocketRegistrator):
            raise TypeError(f"router must be a RocketRouter, not a {type(router).__name__}")
        super().include_router(
            router,
            prefix=prefix,
            dependencies=dependencies,
            middlewares=middlewares,
            include_in_schema=include_in_schema,
        )
