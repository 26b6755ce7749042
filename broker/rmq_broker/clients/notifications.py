"""Tells the members of a group at once when its members have changed (request 40)."""

from __future__ import annotations

import asyncio
import logging

from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import RequestError

from ..config import TopicSettings
from ..groups.table import SubscriptionGroupTable
from .consumers import ConsumerGroup

log = logging.getLogger("rmq.broker.clients")


class MemberChangeNotifier:
    """One notification per group and loop iteration, however many members came and went in it.

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
        if not self._due:
            asyncio.get_running_loop().call_soon(self._notify)
        self._due[group.name] = group

    def _is_wanted(self, name: str) -> bool:
        config = self._groups.get(name)
        return self._settings.notify_consumer_ids_changed_enable and (
            config is None or config.notify_consumer_ids_changed_enable
        )

    def _notify(self) -> None:
        due, self._due = self._due, {}
        for group in due.values():
            for client in list(group.members.values()):
                request = RemotingCommand.request(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name}, oneway=True
                )
                try:
                    client.connection.send_oneway(request)
                except RequestError as error:
                    log.info("consumer %s not told of a change in group %s: %s", client, group.name, error)
                else:
                    self.sent += 1
