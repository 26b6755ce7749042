"""Requests and replies as messages.

A request is an ordinary message with three additional properties: the correlation id of its reply, the client
id of the requester, and how long the requester waits. Source: Apache RocketMQ 5.3.3, MessageUtil,
RequestFutureHolder, ClientRemotingProcessor.
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

from .checks import check_message, refuse
from .errors import UsageError

log = logging.getLogger(__name__)

# Value of the message type property of a reply (MixAll.REPLY_MESSAGE_FLAG).
REPLY_TYPE: Final = "reply"


def check_request(name: str, request: object) -> Message:
    """Check the type of a message to reply to."""
    return check_message(name, request)


def check_body(name: str, body: object) -> bytes:
    """Return a body as bytes."""
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise refuse(name, body, f"must be bytes, not {type(body).__name__}; encode texts with .encode()")
    return bytes(body)


def reply_to(request: Message, body: bytes) -> Message:
    """Return the reply to a request, for any producer to send.

    Raises UsageError for a message that is not a request.
    """
    check_request("request", request)
    body = check_body("body", body)
    properties = request.properties
    cluster = properties.get(PROPERTY_CLUSTER)
    missing = [
        name
        for name in (PROPERTY_CORRELATION_ID, PROPERTY_MESSAGE_REPLY_TO_CLIENT, PROPERTY_CLUSTER)
        if not properties.get(name)
    ]
    if missing:
        raise UsageError(
            f"the message to {request.topic} is not a request, so it cannot be replied to: it has no "
            f"property {', '.join(missing)}"
        )
    reply = Message(f"{cluster}_REPLY_TOPIC", body)
    reply.properties[PROPERTY_MESSAGE_TYPE] = REPLY_TYPE
    for name in (PROPERTY_CORRELATION_ID, PROPERTY_MESSAGE_REPLY_TO_CLIENT, PROPERTY_MESSAGE_TTL):
        value = properties.get(name)
        if value is not None:
            reply.properties[name] = value
    return reply


def request_of(message: Message, client_id: str, timeout_seconds: float) -> tuple[Message, str]:
    """Return the message as a request of a client, and the correlation id of its reply."""
    correlation_id = str(uuid.uuid4())
    request = Message(message.topic, message.body, flag=message.flag)
    request.properties = {
        **message.properties,
        PROPERTY_CORRELATION_ID: correlation_id,
        PROPERTY_MESSAGE_REPLY_TO_CLIENT: client_id,
        PROPERTY_MESSAGE_TTL: str(int(timeout_seconds * 1000)),
    }
    return request, correlation_id
