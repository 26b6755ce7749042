"""Clients connected to a broker."""

from __future__ import annotations

from pydantic import Field

from ..codes import LanguageCode
from ..integers import Int32, Int64
from .base import Body, Language
from .heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData


class Connection(Body):
    """One client connection; the address is `host:port`, the version an ordinal of Apache's MQVersion."""

    client_addr: str | None = None
    client_id: str | None = None
    language: Language = LanguageCode.JAVA
    version: Int32 = 0

    def to_wire(self) -> dict[str, object]:
        """Return the members as of any body, the language by its name."""
        return {**super().to_wire(), "language": self.language.name}


class ConsumerConnection(Body):
    """The consumers of a group, and its subscriptions by topic."""

    connection_set: list[Connection] = Field(default_factory=list)
    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    subscription_table: dict[str, SubscriptionData] = Field(default_factory=dict)


class ProducerConnection(Body):
    """The producers of a group."""

    connection_set: list[Connection] = Field(default_factory=list)


class ProducerInfo(Body):
    """A producer's connection; `remote_ip` is `host:port` in spite of its name."""

    client_id: str | None = None
    language: Language = LanguageCode.JAVA
    last_update_timestamp: Int64 = 0
    remote_ip: str | None = Field(default=None, alias="remoteIP")
    version: Int32 = 0

    def to_wire(self) -> dict[str, object]:
        """Return the members as of any body, the language by its name."""
        return {**super().to_wire(), "language": self.language.name}


class ProducerTableInfo(Body):
    """All producers of a broker by group."""

    data: dict[str, list[ProducerInfo]] = Field(default_factory=dict)
