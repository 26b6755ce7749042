"""Publishers: a topic with options of its messages, as an object and as a decorator of handlers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack, cast

from faststream._internal.configs import PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream.response.publish_type import PublishType
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec

from rmq_client import SendResult

from .broker_config import RocketBrokerConfig
from .encoding import check_options
from .message import RocketMessage
from .options import MessageOptions
from .response import RocketPublishCommand

if TYPE_CHECKING:
    from faststream._internal.basic_types import SendableMessage
    from faststream._internal.types import PublisherMiddleware
    from faststream.response.response import PublishCommand


@dataclass(kw_only=True)
class RocketPublisherConfig(PublisherUsecaseConfig):
    """Arguments of `publisher`. With `batch`, a list that a handler returns is several messages."""

    _outer_config: RocketBrokerConfig
    topic: str
    batch: bool = False
    reply_to: str = ""
    headers: dict[str, Any] = field(default_factory=dict)
    options: MessageOptions = field(default_factory=MessageOptions)


@dataclass(kw_only=True)
class RocketPublisherSpecificationConfig(PublisherSpecificationConfig):
    """What the AsyncAPI document says of a publisher."""

    topic: str


class RocketPublisherSpecification(
    PublisherSpecification[RocketBrokerConfig, RocketPublisherSpecificationConfig]
):
    """A publisher as a channel of the AsyncAPI document. (AsyncAPI has no bindings of RocketMQ.)"""

    @property
    def topic(self) -> str:
        """The topic with the prefix of its routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        """The key of the channel."""
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """Return the channel by its key."""
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=Operation(
                    message=Message(
                        title=f"{self.name}:Message",
                        payload=resolve_payloads(self.get_payloads(), "Publisher"),
                    ),
                    bindings=None,
                ),
                bindings=None,
            )
        }


class RocketPublisher(PublisherUsecase):
    """Publishes to one topic. As a decorator it publishes what the handler returns."""

    _outer_config: RocketBrokerConfig

    def __init__(
        self, config: RocketPublisherConfig, specification: PublisherSpecification[Any, Any]
    ) -> None:
        super().__init__(config, specification)
        self._topic = config.topic
        self.batch = config.batch
        self.reply_to = config.reply_to
        self.headers = config.headers
        self.options = config.options

    @property
    def topic(self) -> str:
        """The topic with the prefix of its routers."""
        return f"{self._outer_config.prefix}{self._topic}"

    # The base class knows a message and its correlation id; every broker of FastStream adds its options.
    async def publish(
        self,
        message: SendableMessage,
        /,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout: float | None = None,
        **options: Unpack[MessageOptions],
    ) -> SendResult:
        """Publish a message with the publisher's options, or others. Raises as `RocketBroker.publish`."""
        command = RocketPublishCommand(
            message,
            topic=self.topic,
            headers=self.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to or self.reply_to,
            timeout=timeout,
            **cast("MessageOptions", {**self.options, **options}),
            _publish_type=PublishType.PUBLISH,
        )
        result: SendResult = await self._basic_publish(
            command, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return result

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> None:
        """Publish the result of a handler. Its own options take precedence."""
        command = RocketPublishCommand.from_cmd(cmd, batch=self.batch)
        command.destination = command.destination or self.topic
        command.add_headers(self.headers, override=False)
        command.reply_to = command.reply_to or self.reply_to
        for name, value in self.options.items():
            if not getattr(command, name):
                setattr(command, name, value)
        run = self._basic_publish_batch if self.batch else self._basic_publish
        await run(command, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)

    async def request(
        self,
        message: SendableMessage,
        /,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        timeout: float = 3.0,
        **options: Unpack[MessageOptions],
    ) -> RocketMessage:
        """Publish a request and return the reply of its handler. Raises as `RocketBroker.request`."""
        command = RocketPublishCommand(
            message,
            topic=self.topic,
            headers=self.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            timeout=timeout,
            **cast("MessageOptions", {**self.options, **options}),
            _publish_type=PublishType.REQUEST,
        )
        reply: RocketMessage = await self._basic_request(command, producer=self._outer_config.producer)
        return reply


def create_publisher(
    config: RocketPublisherConfig,
    *,
    title: str | None,
    description: str | None,
    schema: Any | None,
    include_in_schema: bool,
) -> RocketPublisher:
    """Return a publisher and what the AsyncAPI document says of it.

    Raises TypeError for an unknown option, and InvalidPropertyError for a value that no message can have.
    """
    check_options(
        RocketPublishCommand(
            None,
            topic=config.topic,
            headers=config.headers,
            **config.options,
            _publish_type=PublishType.PUBLISH,
        )
    )
    specification = RocketPublisherSpecification(
        config._outer_config,
        RocketPublisherSpecificationConfig(
            topic=config.topic,
            schema_=schema,
            title_=title,
            description_=description,
            include_in_schema=include_in_schema,
        ),
    )
    return RocketPublisher(config, specification)
