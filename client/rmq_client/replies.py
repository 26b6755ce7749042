"""Request and reply: who waits for a reply, and what a reply is.

A request is an ordinary message with three properties more: an id that its reply will carry, the id of the
client that asks, and how long that waits. Source: Apache RocketMQ 5.3.3, MessageUtil, RequestFutureHolder,
ClientRemotingProcessor.
"""

from __future__ import annotations

import logging
import uuid
from typing import Final

from rmq_remoting.message import Message
from rmq_remoting.message_properties import (
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MESSAGE_REPLY_TO_CLIENT,
    PROPERTY_MESSAGE_TTL,
    PROPERTY_MESSAGE_TYPE,
)

from .errors import UsageError

log = logging.getLogger("rmq.client.replies")

# Of a reply, the property that says so has this value (MixAll.REPLY_MESSAGE_FLAG).
REPLY_TYPE: Final = "reply"


def reply_to(request: Message, body: bytes) -> Message:
    """The reply to a request, to be sent by any producer.

    Raises UsageError where the message is none that somebody waits for a reply to.
    """
    properties = request.properties
    cluster = properties.get(PROPERTY_CLUSTER)
    missing = [
        name
        for name in (PROPERTY_CORRELATION_ID, PROPERTY_MESSAGE_REPLY_TO_CLIENT, PROPERTY_CLUSTER)
        if not properties.get(name)
    ]
    if missing:
        raise UsageError(
            f"nobody waits for a reply to this message to {request.topic}: it has no property "
            f"{', '.join(missing)}"
        )
    reply = Message(f"{cluster}_REPLY_TOPIC", body)
    reply.properties[PROPERTY_MESSAGE_TYPE] = REPLY_TYPE
    for name in (PROPERTY_CORRELATION_ID, PROPERTY_MESSAGE_REPLY_TO_CLIENT, PROPERTY_MESSAGE_TTL):
        value = properties.get(name)
        if value is not None:
            reply.properties[name] = value
    return reply


def request_of(message: Message, client_id: str, timeout_seconds: float) -> tuple[Message, str]:
    """The message as a request of a client, and the id that its reply will carry."""
    correlation_id = str(uuid.uuid4())
    request = Message(message.topic, message.body, flag=message.flag)
    request.properties = {
        **message.properties,
        PROPERTY_CORRELATION_ID: correlation_id,
        PROPERTY_MESSAGE_REPLY_TO_CLIENT: client_id,
        PROPERTY_MESSAGE_TTL: str(int(timeout_seconds * 1000)),
    }
    return request, correlation_id
