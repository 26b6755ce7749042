"""RocketBroker: FastStream's broker object."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from fast_depends import Provider, dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream.exceptions import SetupError
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec

from rmq_client import Admin, ClientError, ClientSettings, Producer, SendResult

from .broker_config import RocketBrokerConfig
from .log_format import make_rocket_logger_state
from .message import RawMessage, RocketMessage
from .options import MessageOptions, ProducerOptions
from .producer import RocketProducer
from .registrator import RocketRegistrator
from .response import RocketPublishCommand
from .security import secured
from .subscriber import RocketSubscriber

if TYPE_CHECKING:
    from types import TracebackType

    from fast_depends.dependencies import Dependant
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.basic_types import LoggerProto, SendableMessage
    from faststream._internal.configs import UnderlyingDriverAnnotations
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable, IdGenerator
    from faststream.security import BaseSecurity
    from faststream.specification.schema.extra import Tag, TagDict


# Stands for the name servers in the AsyncAPI document where NAMESRV_ADDR is not set.
_UNKNOWN_ADDRESS: Final = "name-server:9876"


class RocketBroker(RocketRegistrator, BrokerUsecase[RawMessage, Producer, RocketBrokerConfig]):
    """Connects an application to a RocketMQ cluster.

    ::

        broker = RocketBroker("127.0.0.1:9876")

        @broker.subscriber("orders", group="till", tags="paid")
        async def on_order(order: Order) -> None:
            ...

        app = FastStream(broker)
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = "127.0.0.1:9876",
        *,
        producer_group: str = "faststream",
        producer_options: ProducerOptions | None = None,
        settings: ClientSettings | None = None,
        graceful_timeout: float | None = 15.0,
        ack_policy: AckPolicy = EMPTY,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[RocketRegistrator] = (),
        id_generator: IdGenerator = gen_cor_id,
        security: BaseSecurity | None = None,
        specification_url: str | Iterable[str] | None = None,
        protocol: str | None = None,
        protocol_version: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
        underlying_driver_annotations: UnderlyingDriverAnnotations | None = None,
    ) -> None:
        """Prepare a broker. Raises SetupError, and InvalidArgumentError of the SDK.

        `name_servers`: `host:port;host:port`, or a sequence; None: those of the variable NAMESRV_ADDR.
        `producer_options`: arguments of the SDK's Producer. `settings`: the SDK's ClientSettings, with TLS,
        access keys and namespace. `security` sets TLS and access keys, too, and documents them: pass
        `SASLPlaintext(username=..., password=...)` with access key and secret key. `graceful_timeout`
        (seconds): how long a stop waits for handlers; None: not at all.

        `ack_policy` counts for subscribers without their own. `specification_url`, `protocol`,
        `protocol_version`, `description` and `tags` are for the AsyncAPI document. The other arguments mean
        what they mean for each of FastStream's brokers.
        """
        self._producer_group = producer_group
        self._producer_options = producer_options or {}
        if specification_url is None:
            specification_url = _addresses(name_servers)
        elif isinstance(specification_url, str):
            specification_url = [specification_url]
        super().__init__(
            routers=routers,
            config=RocketBrokerConfig(
                name_servers=name_servers,
                settings=secured(settings or ClientSettings(), security),
                producer=RocketProducer(parser, decoder),
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=id_generator,
                logger=make_rocket_logger_state(logger=logger, log_level=log_level),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                extra_context={"broker": self},
                underlying_driver_annotations=underlying_driver_annotations or {},
            ),
            specification=BrokerSpec(
                url=list(specification_url),
                protocol=protocol or "rocketmq",
                protocol_version=protocol_version,
                description=description,
                tags=tags,
                security=security,
            ),
        )
        self._new_producer()  # refuses wrong arguments here, and not in `connect`

    async def start(self) -> None:
        """Connect, and start all subscribers. Raises SetupError for two of one group, and ClientError."""
        self._check_groups()
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop the subscribers, each of which waits for its handlers, and then the producer."""
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            producer, self._connection = self._connection, None
            self.config.broker_config.disconnect()
            if producer is not None:
                await producer.stop()

    async def ping(self, timeout: float | None = 3.0) -> bool:
        """Whether a name server answers within `timeout` seconds."""
        config = self.config.broker_config
        try:
            async with (
                asyncio.timeout(timeout),
                Admin(config.name_servers, settings=config.settings) as admin,
            ):
                await admin.cluster_info()
        except (ClientError, TimeoutError):
            return False
        return True

    async def _connect(self) -> Producer:
        config = self.config.broker_config
        producer = self._new_producer()
        await producer.start()
        config.connect(producer)
        return producer

    def _new_producer(self) -> Producer:
        config = self.config.broker_config
        return Producer(
            config.name_servers,
            group=self._producer_group,
            settings=config.settings,
            **self._producer_options,
        )

    def _check_groups(self) -> None:
        groups = Counter(
            subscriber.group for subscriber in self.subscribers if isinstance(subscriber, RocketSubscriber)
        )
        for group, number in groups.items():
            if number > 1:
                raise SetupError(
                    f"{number} subscribers have group {group!r}: all consumers of a group must have the same "
                    "topics and filters; give each subscriber a group of its own, or one subscriber several "
                    "topics and handlers with filters"
                )

    # --- publishing ---

    # The base class knows a message and a topic; every broker of FastStream adds its options.
    async def publish(
        self,
        message: SendableMessage = None,
        topic: str = "",
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout: float | None = None,
        **options: Unpack[MessageOptions],
    ) -> SendResult:
        """Publish a message, and return where it is stored.

        `headers` become user properties. `reply_to`: the topic that the handler's response is published to.
        `timeout` (seconds) bounds the whole send; None: 3 s. Raises the SDK's ClientError, and
        InvalidPropertyError for a header or an option that cannot be stored.
        """
        command = RocketPublishCommand(
            message,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            timeout=timeout,
            **options,
            _publish_type=PublishType.PUBLISH,
        )
        result: SendResult = await self._basic_publish(command, producer=self.config.producer)
        return result

    async def publish_batch(  # type: ignore[override]  # FastStream's base class calls the topic "queue"
        self,
        *messages: SendableMessage,
        topic: str,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout: float | None = None,
        **options: Unpack[MessageOptions],
    ) -> list[SendResult]:
        """Publish messages to one queue as one request, all or none, and return one result for each.

        They share headers and options. Delays and sharding keys are refused. Raises as `publish`.
        """
        command = RocketPublishCommand(
            *(messages or (None,)),
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            timeout=timeout,
            **options,
            _publish_type=PublishType.PUBLISH,
        )
        results: list[SendResult] = await self._basic_publish_batch(command, producer=self.config.producer)
        return results

    async def request(
        self,
        message: SendableMessage = None,
        topic: str = "",
        /,
        timeout: float = 3.0,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **options: Unpack[MessageOptions],
    ) -> RocketMessage:
        """Publish a request, and return the handler's response: `await reply.decode()`.

        It is RocketMQ's request and reply: the consumer may be a Java program, too. Raises NoReply after
        `timeout` seconds, and as `publish`.
        """
        command = RocketPublishCommand(
            message,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            timeout=timeout,
            **options,
            _publish_type=PublishType.REQUEST,
        )
        reply: RocketMessage = await self._basic_request(command, producer=self.config.producer)
        return reply


def _addresses(name_servers: str | Sequence[str] | None) -> list[str]:
    """Return the addresses for the AsyncAPI document, which FastStream leaves empty without any."""
    if name_servers is None:
        name_servers = os.environ.get("NAMESRV_ADDR", "")
    if isinstance(name_servers, str):
        name_servers = name_servers.replace(",", ";").split(";")
    return [address.strip() for address in name_servers if address.strip()] or [_UNKNOWN_ADDRESS]
