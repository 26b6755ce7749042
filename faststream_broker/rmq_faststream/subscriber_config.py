"""Configuration of subscribers, and what the AsyncAPI document says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from faststream._internal.configs import SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream.exceptions import SetupError
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, SubscriberSpec

from rmq_client import ConsumeFrom, Seconds, Topics

from .broker_config import RocketBrokerConfig
from .options import ConsumerOptions


@dataclass(kw_only=True)
class RocketSubscriberConfig(SubscriberUsecaseConfig):
    """Arguments of `subscriber`. `expressions`: tags or an Sql expression by topic, without prefixes."""

    _outer_config: RocketBrokerConfig
    expressions: Mapping[str, str]
    group: str
    batch: bool = False
    max_messages: int = 1
    max_workers: int = 20
    orderly: bool = False
    broadcasting: bool = False
    consume_from: ConsumeFrom = "last"
    max_reconsume_times: int | None = None
    suspend_seconds: Seconds = 1.0
    options: ConsumerOptions = field(default_factory=ConsumerOptions)

    def __post_init__(self) -> None:
        """Raises SetupError for arguments that exclude each other."""
        if not self.batch and self.max_messages != 1:
            raise SetupError(f"max_messages={self.max_messages}: several messages at once need batch=True")

    @property
    def ack_policy(self) -> AckPolicy:
        """The policy of the subscriber, else of its router or broker, else NACK_ON_ERROR."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class RocketSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    """What the AsyncAPI document says of a subscriber."""

    topics: tuple[str, ...]


class RocketSubscriberSpecification(
    SubscriberSpecification[RocketBrokerConfig, RocketSubscriberSpecificationConfig]
):
    """A subscriber as channels of the AsyncAPI document, one for each topic."""

    @property
    def channel_labels(self) -> list[str]:
        """The topics with the prefix of their routers."""
        return [f"{self._outer_config.prefix}{topic}" for topic in self.config.topics]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """Return the channels by their keys."""
        payloads, topics = self.get_payloads(), self.channel_labels
        schema = {}
        for topic in topics:
            name = self._channel_key(topic, split=len(topics) > 1)
            schema[name] = SubscriberSpec(
                address=topic,
                description=self.description,
                operation=Operation(
                    message=Message(title=f"{name}:Message", payload=resolve_payloads(payloads)),
                    bindings=None,
                ),
                bindings=None,
            )
        return schema


def expressions_by_topic(topics: Topics, tags: str) -> dict[str, str]:
    """Return the filter of each topic. Raises SetupError for filters that are given twice, or no topic."""
    if isinstance(topics, Mapping):
        if tags != "*":
            raise SetupError(f"tags={tags!r}: the topics have filters already; pass either of the two")
        expressions = dict(topics)
    else:
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        expressions = dict.fromkeys(names, tags)
    if not expressions:
        raise SetupError("topics is empty: name at least one topic")
    return expressions
