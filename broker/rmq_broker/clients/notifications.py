"""Notify the members of a group when its membership has changed (request 40)."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import RequestError

from ..groups.table import SubscriptionGroupTable
from ..settings.topics import TopicSettings
from .consumers import ConsumerGroup

log = logging.getLogger("rmq.broker.clients")

# A larger group collects more changes per notification, so that notifications stay a small part of the load.
_SMALL_GROUP: Final = 100
_SECONDS_PER_MEMBER: Final = 0.0001


class MemberChangeNotifier:
    """Sends one notification per group and loop iteration, however many members joined or left in it.

    When a group of thousands of members starts, they join one after the other. One notification per member
    and change would be millions, so changes are batched. A client that misses a notification rebalances by
    itself within 20 s (Apache RocketMQ 5.3.3, DefaultConsumerIdsChangeListener).
    """

    def __init__(self, groups: SubscriptionGroupTable, settings: TopicSettings) -> None:
        self.sent = 0
        self._groups = groups
        self._settings = settings
        self._due: dict[str, ConsumerGroup] = {}

    def changed(self, group: ConsumerGroup) -> None:
        """Notify a group whose members or topics have changed; a listener of `ConsumerTable.on_change`."""
        if not group.members or group.is_broadcasting or not self._is_wanted(group.name):
            return
        is_first = group.name not in self._due
        self._due[group.name] = group
        if is_first:
            members = len(group.members)
            delay_seconds = members * _SECONDS_PER_MEMBER if members > _SMALL_GROUP else 0.0
            asyncio.get_running_loop().call_later(delay_seconds, self._notify, group.name)

    def _is_wanted(self, name: str) -> bool:
        config = self._groups.get(name)
        return self._settings.notify_consumer_ids_changed_enable and (
            config is None or config.notify_consumer_ids_changed_enable
        )

    def _notify(self, name: str) -> None:
        group = self._due.pop(name)
        for client in list(group.members.values()):
            request = RemotingCommand.request(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": name}, oneway=True
            )
            try:
                client.connection.send_oneway(request)
            except RequestError as error:
                log.info("membership change not sent client=%s group=%s: %s", client, name, error)
            else:
                self.sent += 1
