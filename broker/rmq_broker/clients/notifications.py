"""Tells the members of a group at once when its members have changed (request 40)."""

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

# A larger group waits for more changes, so that telling its members stays a small part of the broker's work.
_SMALL_GROUP: Final = 100
_SECONDS_PER_MEMBER: Final = 0.0001


class MemberChangeNotifier:
    """One notification per group and loop iteration, however many members came and went in it.

    When a group of thousands starts, its members join one after the other: each is not told of each, which
    would be millions of notifications, but of many at a time.
    Clients that miss one find out by themselves within 20 s (Apache RocketMQ 5.3.3,
    DefaultConsumerIdsChangeListener).
    """

    def __init__(self, groups: SubscriptionGroupTable, settings: TopicSettings) -> None:
        self.sent = 0
        self._groups = groups
        self._settings = settings
        self._due: dict[str, ConsumerGroup] = {}

    def changed(self, group: ConsumerGroup) -> None:
        """A group's members or topics have changed. To be registered with `ConsumerTable.on_change`."""
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
                log.info("consumer %s not told of a change in group %s: %s", client, name, error)
            else:
                self.sent += 1
