"""Routers: subscribers and publishers of a module, for a broker to include."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream.middlewares import AckPolicy

from rmq_client import Topics

from .broker_config import RocketBrokerConfig
from .message import RawMessage
from .options import MessageOptions
from .registrator import RocketRegistrator

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.basic_types import SendableMessage
    from faststream._internal.configs import UnderlyingDriverAnnotations
    from faststream._internal.types import BrokerMiddleware, CustomCallable


class RocketPublisher(ArgsContainer):
    """Arguments of `publisher`, for the `publishers` of a RocketRoute."""

    def __init__(
        self,
        topic: str,
        *,
        batch: bool = False,
        reply_to: str = "",
        headers: dict[str, Any] | None = None,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
        **options: Unpack[MessageOptions],
    ) -> None:
        super().__init__(
            topic,
            batch=batch,
            reply_to=reply_to,
            headers=headers,
            title=title,
            description=description,
            schema=schema,
            include_in_schema=include_in_schema,
            **options,
        )


class RocketRoute(SubscriberRoute):
    """A handler with the arguments of `subscriber`, for the `handlers` of a RocketRouter."""

    def __init__(
        self,
        call: Callable[..., SendableMessage] | Callable[..., Awaitable[SendableMessage]],
        topics: Topics,
        *,
        group: str,
        publishers: Iterable[RocketPublisher] = (),
        **options: Any,
    ) -> None:
        """`options`: arguments of `RocketBroker.subscriber`, which checks them."""
        super().__init__(call, topics, group=group, publishers=publishers, **options)


class RocketRouter(RocketRegistrator, BrokerRouter[RawMessage, RocketBrokerConfig]):
    """Subscribers and publishers that a broker includes: `broker.include_router(router)`."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[RocketRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[RocketRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        include_in_schema: bool | None = None,
        ack_policy: AckPolicy = EMPTY,
        underlying_driver_annotations: UnderlyingDriverAnnotations | None = None,
    ) -> None:
        """`prefix` comes before the names of topics. The other arguments count for all subscribers."""
        super().__init__(
            handlers=handlers,
            config=RocketBrokerConfig(
                prefix=prefix,
                ack_policy=ack_policy,
                broker_dependencies=dependencies,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                include_in_schema=include_in_schema,
                underlying_driver_annotations=underlying_driver_annotations or {},
            ),
            routers=routers,
        )
