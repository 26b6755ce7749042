"""Membership of consumers that ask for messages, by pulling or by popping, in their group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from rmq_remoting.bodies.heartbeat import ConsumerData, ConsumeType, MessageModel
from rmq_remoting.bodies.running_info import (
    PROP_CONSUME_TYPE,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
)
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..network.instance import ClientInstance
from .offsets.start_position import ConsumeFrom, to_wire
from .subscription import Subscription

log = logging.getLogger(__name__)


class PollingMember:
    """Answers brokers and administrators for a pull or simple consumer. Belongs to the network loop."""

    def __init__(
        self,
        group: str,
        consume_from: ConsumeFrom,
        consume_type: ConsumeType = ConsumeType.CONSUME_ACTIVELY,
        group_changed: Callable[[], None] | None = None,
    ) -> None:
        """`group_changed` is called when a member has joined or left."""
        self._group = group
        self._consume_type = consume_type
        self._consume_from = consume_from
        self._group_changed = group_changed
        self._subscriptions: list[Subscription] = []

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._group

    async def subscribe(self, instance: ClientInstance, subscriptions: list[Subscription]) -> None:
        """Replace the subscriptions and tell the brokers.

        Raises ClientError for a topic without a route, and for an expression that a broker cannot filter by.
        """
        for subscription in subscriptions:
            instance.routes.watch(subscription.topic)
            route = await instance.routes.route(subscription.topic)
            if subscription.is_by_properties:
                await instance.check_expression(self._group, subscription.data, route)
        self._subscriptions = subscriptions
        await instance.announce()

    def heartbeat_data(self) -> ConsumerData:
        """Return the consumer's mode (messages are fetched, not pushed) and subscriptions."""
        return ConsumerData(
            group_name=self._group,
            consume_type=self._consume_type,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=to_wire(self._consume_from),
            subscription_data_set=[subscription.data for subscription in self._subscriptions],
        )

    def rebalance_soon(self) -> None:
        """Rebalance, if the members of the group share the queues of topics."""
        if self._group_changed is not None:
            self._group_changed()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Log the order of an administrator: the application seeks by itself, and gets new offsets after a
        restart.
        """
        log.warning(
            "offsets reset by an administrator group=%s topic=%s; this consumer continues there when the "
            "broker refuses its next pull, or after its restart",
            self._group,
            topic,
        )

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """Return nothing: only the application's loop knows the positions."""
        return {}

    def running_info(self) -> ConsumerRunningInfo:
        """Return the type of the consumer and its subscriptions."""
        return ConsumerRunningInfo(
            properties={PROP_CONSUME_TYPE: self._consume_type.value},
            subscription_set=[subscription.data for subscription in self._subscriptions],
        )

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Refuse: there is no listener."""
        raise CommandError(
            ResponseCode.SYSTEM_ERROR,
            f"group {self._group} pulls: it has no listener for a message",
        )
