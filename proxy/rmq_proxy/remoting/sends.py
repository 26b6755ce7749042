"""Sends and recalls on the remoting port: the message has to be of its topic's type.

Source: Apache RocketMQ 5.3.3, SendMessageActivity, RecallMessageActivity and
DefaultTopicMessageTypeValidator.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from rmq_client.errors import PermissionDenied
from rmq_remoting.answers import Answer
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.errors import CommandError
from rmq_remoting.message_properties import PROPERTY_TRANSFER_FLAG, properties_from_string
from rmq_remoting.repeated_event import RepeatedEvent

from ..metadata import Metadata, TopicType, check_type, type_of
from ..statuses import Refusal
from .relay import Relay

log = logging.getLogger("rmq.proxy")

# After brokers have refused to tell a type, none is asked for during this time.
_REFUSED_SECONDS: Final = 20.0
_LOG_SECONDS: Final = 600.0
# The names of the topic and of the properties in a header. The compact header abbreviates them.
_LONG_NAMES: Final = ("topic", "properties")
_SHORT_NAMES: Final = ("b", "i")
# Topics of retries and of dead letters take all messages.
_ANY_TYPE: Final = ("%RETRY%", "%DLQ%")


class Sends:
    """Passes sends and recalls on after a check of their type. Belongs to one loop."""

    def __init__(self, relay: Relay, metadata: Metadata, *, checks_types: bool) -> None:
        """`checks_types`: whether topics take messages of their own type alone."""
        self._relay = relay
        self._metadata = metadata
        self._checks_types = checks_types
        self._asks_again_at = 0.0
        self._refused = RepeatedEvent(_LOG_SECONDS)

    async def send(self, client: Connection, code: int, request: RemotingCommand) -> Answer:
        """10, 310, 320: pass messages on. Raises CommandError (MESSAGE_ILLEGAL for another type)."""
        if self._checks_types:
            fields = request.ext_fields
            topic_name, properties_name = _LONG_NAMES if code == RequestCode.SEND_MESSAGE else _SHORT_NAMES
            topic = fields.get(topic_name, "")
            properties = properties_from_string(fields.get(properties_name, ""))
            if PROPERTY_TRANSFER_FLAG not in properties and not topic.startswith(_ANY_TYPE):
                await self._check(topic, type_of(properties))
        return await self._relay.by_name(client, code, request)

    async def recall(self, client: Connection, code: int, request: RemotingCommand) -> Answer:
        """370: recall a delayed message. Raises as `send`."""
        if self._checks_types:
            await self._check(request.ext_fields.get("topic", ""), TopicType.DELAY)
        return await self._relay.by_name(client, code, request)

    async def _check(self, topic: str, actual: TopicType) -> None:
        """Raise CommandError for a message of another type than its topic's.

        A proxy without keys in front of brokers that check users cannot ask for the type: it checks nothing.
        """
        loop = asyncio.get_running_loop()
        if loop.time() < self._asks_again_at:
            return
        try:
            check_type(await self._metadata.allowed_topic_type(topic), actual)
        except PermissionDenied as error:
            self._asks_again_at = loop.time() + _REFUSED_SECONDS
            if self._refused.occurred():
                log.warning(
                    "types of messages not checked topic=%s cause=%s; set "
                    "innerClientAuthenticationCredentials, or enableTopicMessageTypeCheck=false",
                    topic,
                    error,
                )
        except Refusal as refusal:
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL, f"{refusal} (topic {topic:.100}, attribute message.type)"
            ) from refusal
