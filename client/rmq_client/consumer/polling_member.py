"""What brokers and administrators see of a consumer that asks for messages: by pulling, or by popping."""

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

log = logging.getLogger("rmq.client.pull_consumer")


class PollingMember:
    """Such a consumer as a member of its group. Belongs to the network loop."""

    def __init__(
        self,
        group: str,
        consume_from: ConsumeFrom,
        consume_type: ConsumeType = ConsumeType.CONSUME_ACTIVELY,
        group_changed: Callable[[], None] | None = None,
    ) -> None:
        """`group_changed` is told when a member has come or gone."""
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
        """These are read now; the brokers are told.

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
        """Messages are fetched, not pushed."""
        return ConsumerData(
            group_name=self._group,
            consume_type=self._consume_type,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=to_wire(self._consume_from),
            subscription_data_set=[subscription.data for subscription in self._subscriptions],
        )

    def rebalance_soon(self) -> None:
        """Who shares the queues of topics looks at them again; other queues are the application's choice."""
        if self._group_changed is not None:
            self._group_changed()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """The application seeks by itself; it sees the new offsets when it starts again."""
        log.warning(
            "group %s: an administrator's new offsets of %s count after a restart", self._group, topic
        )

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """Known only to the application's loop."""
        return {}

    def running_info(self) -> ConsumerRunningInfo:
        """What little there is to tell."""
        return ConsumerRunningInfo(
            properties={PROP_CONSUME_TYPE: self._consume_type.value},
            subscription_set=[subscription.data for subscription in self._subscriptions],
        )

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """There is no listener to give it to."""
        raise CommandError(
            ResponseCode.SYSTEM_ERROR,
            f"group {self._group} pulls: it has no listener to give a message to",
        )
