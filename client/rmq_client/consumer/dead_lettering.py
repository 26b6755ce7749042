"""Dead letters by order of the application, for consumers without a listener."""

from __future__ import annotations

from copy import copy

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..bodies.encoding import note_reason
from ..checks import refuse
from ..namespaces import Namespace
from ..network.instance import ClientInstance
from .processing.listener import DEAD_LETTER
from .processing.send_back import RetryRules, SendBack


class DeadLetterSender:
    """Makes messages dead letters of one group. Belongs to the loop of its consumer."""

    def __init__(self, instance: ClientInstance, group: str, namespace: Namespace) -> None:
        """`group` is the full name."""
        self._instance = instance
        self._namespace = namespace
        # Parts of the network loop, where `send` runs them.
        self._send_back = SendBack(
            RetryRules(group, None), instance.api, instance.connections, instance.routes, instance.settings
        )

    async def send(self, message: MessageExt, reason: str) -> None:
        """Have a copy of the message put into the dead-letter topic, with the reason. Raises ClientError."""
        dead = copy(message)
        dead.properties = dict(message.properties)
        if reason:
            note_reason(dead, reason)
        queue = MessageQueue(self._namespace.wrap(dead.topic), dead.broker_name, dead.queue_id)
        await self._instance.run(self._send_back.send_back(dead, queue, DEAD_LETTER))


def check_reason(reason: object) -> str:
    """Check the reason of a dead letter; empty: none. Raises InvalidArgumentError."""
    if not isinstance(reason, str):
        raise refuse("reason", reason, f"must be a str, not {type(reason).__name__}")
    return reason
