"""Filters for tests, wired as in a broker."""

from __future__ import annotations

from rmq_broker.clients.consumers import ConsumerTable
from rmq_broker.filtering.expressions import Expressions
from rmq_broker.filtering.filter_table import ConsumerFilterTable
from rmq_broker.filtering.message_filters import MessageFilters
from rmq_broker.settings.broker import BrokerSettings
from tests.unit.broker.parts import Clock


def filter_table(consumers: ConsumerTable, settings: BrokerSettings) -> ConsumerFilterTable:
    """What the groups of `consumers` filter by, from now on."""
    table = ConsumerFilterTable(settings, Expressions(settings), Clock())
    consumers.on_subscriptions(table.register)
    consumers.on_change(table.members_changed)
    return table


def message_filters(consumers: ConsumerTable, settings: BrokerSettings) -> MessageFilters:
    """The filters of the groups of `consumers`."""
    table = filter_table(consumers, settings)
    return MessageFilters(settings, Expressions(settings), table, consumers.find_subscription)
